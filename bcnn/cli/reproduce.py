"""`bcnn reproduce` and `bcnn report`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..options import declared_by, pick
from ..runs.config import RESCALES, RunConfig
from ..train.config import FinetuneConfig, FinetuneSession
from ..train.recipes import DEFAULT_RECIPE, with_recipe
from .common import device as check_device
from .common import download_report, is_given, make_console, names
from .options import with_options
from .progress import progress_bars

SMOKE = "textures,per_class=10"
SMOKE_DECIDES = ("networks", "weights", "size", "tuned_size", "epochs")

# Options of `bcnn train`, some with other defaults.
RUN, SESSION, TUNING = map(declared_by, (RunConfig, FinetuneSession, FinetuneConfig))
SIZE = replace(RUN["size"], default=448, show_default=None, help="The side of images in pixels, for frozen networks.")
RESCALE = replace(RUN["rescale"], default="none", show_default=None, choices=RESCALES)
RECIPE = replace(SESSION["recipe"], default=DEFAULT_RECIPE, show_default=None)
EPOCHS = replace(TUNING["epochs"], default=None, show_default="the recipe's: 50, the paper's 100")
SHARED = {option.name: option for option in (RUN["weights"], SIZE, RESCALE, RECIPE, EPOCHS, TUNING["freeze_until"])}
HOW = pick(RunConfig, "batch", "workers", "strict", "device")


@with_options(SHARED, HOW)
def reproduce(
    context: typer.Context,
    artifacts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARTIFACT...",
            help="Of `bcnn reproduce --list`, or all. Further NAME=PATH of --data may follow.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="NAME=PATH",
            show_default=False,
            help="A dataset: cub=PATH, cars=PATH, aircraft=PATH as in the paper, or NAME=SPEC; several may follow.",
        ),
    ] = None,
    networks: Annotated[str, typer.Option(help="vgg16, vgg_m, alexnet, timm/<model>, ...; separated by commas.")] = (
        "vgg16"
    ),
    tuned_size: Annotated[
        int | None,
        typer.Option(min=1, help="The side of images in pixels, for fine-tuning.", show_default="--size"),
    ] = None,
    seeds: Annotated[str, typer.Option(help="The seeds of fine-tuning, separated by commas.")] = "0",
    ridge: Annotated[
        str,
        typer.Option(
            help="ours, or paper: 1e-6 of the largest eigenvalue (its epsilon = 1), and its exact signed square root."
        ),
    ] = "ours",
    finetune: Annotated[
        bool, typer.Option(help="Fine-tune where an artifact wants it: hours to days without a GPU.")
    ] = True,
    reuse: Annotated[
        list[Path] | None,
        typer.Option(help="A folder of runs of `bcnn train --finetune`, taken where they fit.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results, features, runs and the report.", show_default="runs/reproduce, or runs/smoke"
        ),
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Everything end to end in minutes: textures, a tiny random network.")
    ] = False,
    plan_only: Annotated[bool, typer.Option("--plan", help="Say what would be done, and how long it takes.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="The artifacts, and no more.")] = False,
    **options: Any,
) -> None:
    """Make tables and figures of the paper again: ours beside theirs.

    A plan comes first. Features of a network are described once for all artifacts; interrupt it at any time, and the
    same command goes on. Measurements go to results.jsonl, and a report is written beside them.
    """
    from ..experiments import EXPERIMENTS

    console = make_console()
    if listing:
        for name, experiment in EXPERIMENTS.items():
            console.print(f"[bold]{name}[/bold]\n  {experiment.summary}", soft_wrap=True, highlight=False)
        return
    wanted, specs = _split(artifacts or [], data or [])
    if smoke:
        _check_smoke(context, specs)
        specs, networks, tuned_size = {"textures": SMOKE}, "tiny", 64
        options |= {"weights": None, "size": 64, "epochs": 1}
    weights = options["weights"]
    if weights is not None and weights.endswith(".safetensors"):
        weights = str(Path(weights).resolve())  # the same however it is typed
    chosen = {
        **{name: options[name] for name in SHARED},
        "networks": names("--networks", networks),
        "weights": Path(weights or "none").name,
        "tuned_size": tuned_size or options["size"],
        "epochs": options["epochs"] or FinetuneConfig(**with_recipe(options["recipe"], {})).epochs,
        "seeds": _whole_numbers("--seeds", seeds),
        "ridge": ridge,
        **({"dim": 32} if smoke else {}),
    }
    place = out or Path("runs/smoke" if smoke else "runs/reproduce")
    shop = _shop(specs, weights, {name: options[name] for name in HOW}, reuse or [], place)
    _go(wanted, shop, chosen, finetune=finetune, plan_only=plan_only)


def _check_smoke(context: typer.Context, specs: dict[str, str]) -> None:
    """What it decides by itself is not to be given."""
    given = [f"--{name.replace('_', '-')}" for name in SMOKE_DECIDES if is_given(context, name)]
    if specs or given:
        got = ", ".join([*specs, *given])
        raise ValueError(f"--smoke: expected no dataset, network or size, it has its own, got {got}; leave that out.")


def _shop(specs: dict[str, str], weights: str | None, how: dict[str, Any], reuse: Sequence[Path], out: Path) -> Any:
    from ..experiments.workshop import Workshop
    from ..features.extract import ExtractOptions

    if not specs:
        raise ValueError("reproduce: expected --data NAME=PATH, such as cub=CUB_200_2011, or --smoke; got none.")
    for folder in reuse:
        if not folder.is_dir():
            raise FileNotFoundError(f"--reuse: expected a folder of runs, got {folder}, which is not there.")
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"--out: expected a folder, got {out}, which is a file; choose another.")
    options = ExtractOptions(**{**how, "device": check_device(how["device"])})
    return Workshop(specs, out, options, weights=weights, reuse=reuse, report=download_report())


def _go(wanted: Sequence[str], shop: Any, chosen: dict[str, Any], *, finetune: bool, plan_only: bool) -> None:
    from contextlib import nullcontext

    from ..experiments.plan import make_plan
    from ..experiments.results import FILE, Results
    from ..experiments.run import alone, register

    console = make_console()
    with console.status("reading the data, measuring a sample"):
        subjects = _subjects(shop, chosen)
    with nullcontext() if plan_only else alone(shop.out):
        results = Results(shop.out / FILE)
        with console.status("measuring a sample"):
            plan = make_plan(wanted, subjects, results, shop, finetune=finetune)
        _print_plan(console, plan)
        if plan_only:
            return
        register(subjects, results, shop)
        failures = _carry_out(plan, results, shop)
    _tell(console, shop, failures)
    _write_report(console, [shop.out], shop.out / "report.html")
    if failures:
        raise typer.Exit(1)


def _carry_out(plan: Any, results: Any, shop: Any) -> list[Any]:
    """With a bar over all of it."""
    from ..experiments.run import carry_out

    overall = f"{len(plan.steps)} steps, about {_span(plan.seconds)}; %"
    with progress_bars(overall=overall) as progress:
        shop.progress = progress
        return carry_out(plan, results, shop, overall=overall)


def _tell(console: Any, shop: Any, failures: Sequence[Any]) -> None:
    """What went wrong, at the end, where it is seen."""
    from ..features.folder import describe_broken

    for name, broken in shop.broken.items():
        if broken:
            said = f"{name}: {describe_broken(broken, shop.num_images(name)[1])}"
            console.print(said, style="yellow", markup=False, soft_wrap=True)
    for failure in failures:
        console.print(f"NOT DONE: {failure.name}: {failure.why}", style="red", markup=False, soft_wrap=True)


def _split(artifacts: Sequence[str], data: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Artifacts and datasets: of words on one command line, those with a "=" are datasets."""
    from ..data import DATASETS
    from ..errors import unknown_name
    from ..experiments import EXPERIMENTS

    specs: dict[str, str] = {}
    for text in (*data, *(word for word in artifacts if "=" in word)):
        name, _, path = text.partition("=")
        if not re.fullmatch(r"[\w.+-]+", name) or not path:
            raise ValueError(f"--data: expected NAME=PATH, such as cub=CUB_200_2011, got {text!r}.")
        if name in specs:
            raise ValueError(f"--data: expected each dataset once, got {name} twice.")
        kind, colon, _ = path.partition(":")
        is_spec = (colon and kind in DATASETS) or name not in DATASETS or DATASETS[name].built_in
        specs[name] = path if is_spec else f"{name}:{path}"
    wanted = list(dict.fromkeys(word for word in artifacts if "=" not in word))
    if not wanted:
        raise ValueError("reproduce: expected an ARTIFACT, or all; see: bcnn reproduce --list.")
    for word in wanted:
        if word not in (*EXPERIMENTS, "all"):
            raise unknown_name("reproduce", "artifact", word, (*EXPERIMENTS, "all"))
    return list(EXPERIMENTS) if "all" in wanted else wanted, specs


def _subjects(shop: Any, chosen: dict[str, Any]) -> list[Any]:
    import torch

    from ..experiments.records import Subject

    rest = {name: value for name, value in chosen.items() if name != "networks"}
    return [
        Subject(
            dataset=name, images=shop.images(name), network=network,
            parameters=shop.parameters(name, network, chosen["size"]), device=shop.options.device,
            threads=torch.get_num_threads(), **rest,
        )
        for name in shop.data
        for network in chosen["networks"]
    ]  # fmt: skip


def _whole_numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(part) for part in names(option, text)))
    except ValueError:
        raise ValueError(f"{option}: expected whole numbers separated by commas, got {text!r}; try 0,1,2.") from None


def _print_plan(console: Any, plan: Any) -> None:
    from rich import box
    from rich.table import Table

    table = Table("artifact", box=box.SIMPLE_HEAD, title="Plan", title_justify="left")
    for name in ("measurements", "done", "to do", "about"):
        table.add_column(name, justify="right")
    for share in plan.shares:
        counts = (share.num_cells, share.num_done, share.num_todo)
        table.add_row(share.artifact, *map(str, counts), _span(share.seconds))
    console.print(table)
    for step in plan.steps:
        if step.source is not None and step.num_images:
            said = f"{step.num_images} images and their flips to {step.name}: about {_span(step.seconds)}"
            console.print(said, markup=False, soft_wrap=True)
    if plan.num_left_out:
        console.print(f"{plan.num_left_out} measurements need fine-tuning and are left out (--no-finetune).")
    console.print(
        f"In all {len(plan.steps)} steps, about {_span(plan.seconds)}; what several artifacts need is done once."
    )


def _span(seconds: float) -> str:
    """A time for people."""
    if seconds < 1:
        return "0 s" if seconds == 0 else "1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS...", help="Folders of `bcnn reproduce` and of `bcnn train`.")
    ],
    out: Annotated[Path, typer.Option(help="The page; .md and .tex with its tables come beside it.")] = Path(
        "report.html"
    ),
) -> None:
    """One page with all tables, figures, curves and configurations; it needs nothing from outside."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out: expected a file name that ends with .html, got {out}; .md and .tex come besides.")
    _write_report(make_console(), runs, out)


def _write_report(console: Any, runs: Sequence[Path], page: Path) -> None:
    from ..experiments.report import write_report

    for path in write_report(runs, page):
        console.print(f"Written: {path}", markup=False, soft_wrap=True)
