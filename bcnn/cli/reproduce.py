"""`bcnn reproduce` and `bcnn report`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..finetune.config import FinetuneConfig, FinetuneSession
from ..finetune.recipes import DEFAULT_RECIPE, with_recipe
from ..options import Names, declared_by, option, pick
from ..runs.config import RESCALES, RunConfig
from .common import device as check_device
from .common import download_report, is_given, make_console
from .options import with_options
from .progress import progress_bars

if TYPE_CHECKING:
    from rich.console import Console

    from ..experiments.plan import Plan
    from ..experiments.records import Subject
    from ..experiments.run import Failure
    from ..experiments.workshop import Workshop

# What --smoke decides by itself.
SMOKE_DATA = {"textures": "textures,per_class=10"}
SMOKE = {"networks": ("tiny",), "weights": None, "size": 64, "tuned_size": 64, "epochs": 1, "dim": 32}

# Options of `bcnn train`, some with other defaults.
RUN, SESSION, TUNING = map(declared_by, (RunConfig, FinetuneSession, FinetuneConfig))
SIZE = replace(RUN["size"], default=448, show_default=None, help="The side of images in pixels, for frozen networks.")
RESCALE = replace(RUN["rescale"], default="none", show_default=None, choices=RESCALES)
RECIPE = replace(SESSION["recipe"], default=DEFAULT_RECIPE, show_default=None)
EPOCHS = replace(TUNING["epochs"], default=None, show_default="the recipe's: 50, the paper's 100")
SHARED = {
    own.name: replace(own, needs=None)  # artifacts decide whether there is fine-tuning
    for own in (RUN["weights"], RUN["flips"], SIZE, RESCALE, RECIPE, EPOCHS, TUNING["freeze_until"])
}
HOW = pick(RunConfig, "batch", "workers", "strict", "device", "engine")


@dataclass(frozen=True)
class Own:
    """The options that `bcnn train` does not have."""

    data: tuple[str, ...] = option(
        (), show_default="none",
        help="NAME=PATH, a dataset: cub, cars, aircraft as in the paper, or NAME=SPEC; several may follow.",
    )  # fmt: skip
    networks: tuple[str, ...] = option(
        ("vgg16",), commas=True, help="vgg16, vgg_m, alexnet, timm/<model>, ...; separated by commas."
    )
    tuned_size: int | None = option(
        None, at_least=1, show_default="--size", help="The side of images in pixels, for fine-tuning."
    )
    seeds: tuple[int, ...] = option(
        (0,), commas=True, show_default="0", help="The seeds of fine-tuning, separated by commas."
    )
    ridge: str = option(
        "ours", choices=Names("experiments.records", "RIDGES"),
        help="The ridge: ours, or the paper's, 1e-6 of the largest eigenvalue, with its exact signed square root. "
        "absolute is its epsilon = 1 to the letter, for weights and pixels like the paper's.",
    )  # fmt: skip
    systems: tuple[str, ...] = option(
        (), commas=True, show_default="all",
        help="Rows of table4_prior_work by name, such as bcnn,cbp,monet, frozen and fine-tuned; separated by commas.",
    )  # fmt: skip
    finetune: bool = option(True, help="Fine-tune where an artifact wants it: hours to days without a GPU.")
    reuse: tuple[str, ...] = option(
        (), show_default="none", help="A folder of runs of `bcnn train --finetune`, taken where they fit."
    )
    out: str | None = option(
        None, show_default="runs/reproduce, or runs/smoke", help="Folder for results, descriptors, runs and the report."
    )
    smoke: bool = option(False, help="Everything end to end in minutes: textures, a tiny random network.")
    plan: bool = option(False, help="Say what would be done, and how long it takes.")
    list: bool = option(False, help="List the artifacts and do nothing else.")


@with_options(declared_by(Own), SHARED, HOW)
def reproduce(
    context: typer.Context,
    artifacts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARTIFACT...",
            help="Names from `bcnn reproduce --list`, or all. Further NAME=PATH of --data may follow.",
            show_default=False,
        ),
    ] = None,
    **options: Any,
) -> None:
    """Make tables and figures of the paper again: ours beside theirs.

    A plan comes first. Images are described once per network for all artifacts; interrupt it at any time, and the
    same command goes on. Measurements go to results.jsonl, and a report is written beside them.
    """
    from ..experiments import EXPERIMENTS

    if options["list"]:
        for name, experiment in EXPERIMENTS.items():
            make_console().print(f"[bold]{name}[/bold]\n  {experiment.summary}", soft_wrap=True, highlight=False)
        return
    wanted, specs = _split(artifacts or [], options["data"] or ())
    if options["smoke"]:
        given = [f"--{name.replace('_', '-')}" for name in SMOKE if is_given(context, name)]
        if specs or given:
            got = ", ".join([*specs, *given])
            raise ValueError(f"--smoke: expected no dataset, network or size, it has its own, got {got}; leave it out.")
        specs, options = SMOKE_DATA, {**options, **SMOKE}
    _go(wanted, _shop(specs, options), options)


def _shop(specs: dict[str, str], options: dict[str, Any]) -> Workshop:
    from ..descriptors.extract import ExtractOptions
    from ..experiments.workshop import Workshop

    if not specs or not options["networks"]:
        raise ValueError(
            "reproduce: expected --data NAME=PATH, such as cub=CUB_200_2011, and --networks, or --smoke; got none."
        )
    reuse = list(map(Path, options["reuse"] or ()))
    out = Path(options["out"] or ("runs/smoke" if options["smoke"] else "runs/reproduce"))
    for folder in reuse:
        if not folder.is_dir():
            raise FileNotFoundError(f"--reuse: expected a folder of runs, got {folder}, which is not there.")
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"--out: expected a folder, got {out}, which is a file; choose another.")
    weights = options["weights"]
    if weights is not None and weights.endswith(".safetensors"):
        weights = str(Path(weights).resolve())  # the same however it is typed
    how = ExtractOptions(**{name: options[name] for name in HOW} | {"device": check_device(options["device"])})
    return Workshop(specs, out, how, weights=weights, reuse=reuse, report=download_report())


def _subjects(shop: Workshop, options: dict[str, Any]) -> list[Subject]:
    import torch

    from ..data.contract import TRAIN
    from ..errors import unknown_name
    from ..experiments.records import Subject
    from ..experiments.table4_prior_work import NAMES

    for name in options["systems"] or ():
        if name not in NAMES:
            raise unknown_name("--systems", "system", name, NAMES)
    same = {name: options[name] for name in ("size", "flips", "ridge", "rescale", "recipe", "freeze_until")}
    same |= {
        "weights": Path(shop.weights or "none").name,
        "tuned_size": options["tuned_size"] or options["size"],
        "epochs": options["epochs"] or FinetuneConfig(**with_recipe(options["recipe"], {})).epochs,
        "seeds": tuple(dict.fromkeys(options["seeds"] or (0,))),
        "systems": tuple(dict.fromkeys(options["systems"] or ())),
        "device": shop.options.device,
        "threads": torch.get_num_threads(),
        **({"dim": options["dim"]} if "dim" in options else {}),
    }
    return [
        Subject(
            name,
            shop.images(name),
            network,
            parameters=shop.parameters(name, network, options["size"]),
            boxes=any(sample.box is not None for sample in shop.dataset(name).of(TRAIN)),
            **same,
        )
        for name in shop.data
        for network in options["networks"]
    ]


def _go(wanted: Sequence[str], shop: Workshop, options: dict[str, Any]) -> None:
    """Say what there is to do, do it, and write the report."""
    from ..experiments.plan import make_plan
    from ..experiments.results import FILE, Results
    from ..experiments.run import alone, carry_out, register

    console = make_console()
    with console.status("reading the data, measuring a sample"):
        subjects = _subjects(shop, options)
    with nullcontext() if options["plan"] else alone(shop.out):
        results = Results(shop.out / FILE)
        with console.status("measuring a sample"):
            plan = make_plan(wanted, subjects, results, shop, finetune=options["finetune"])
        _print_plan(console, plan)
        if options["plan"]:
            return
        register(subjects, results, shop)
        overall = f"{len(plan.steps)} steps, about {_span(plan.seconds)}; %"
        with progress_bars(overall=overall) as progress:
            shop.progress = progress
            failures = carry_out(plan, results, shop, overall=overall)
    _tell(console, shop, failures)
    _write_report(console, [shop.out], shop.out / "report.html")
    if failures:
        raise typer.Exit(1)


def _tell(console: Console, shop: Workshop, failures: Sequence[Failure]) -> None:
    """What went wrong, at the end, where it is seen."""
    from ..descriptors.folder import broken_images

    for name, broken in shop.broken.items():
        if broken:
            said = f"{name}: {broken_images(broken, shop.num_images(name)[1])}"
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


def _print_plan(console: Console, plan: Plan) -> None:
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
            views = "images and their flips" if step.source.flips else "images"
            said = f"{step.num_images} {views} to {step.name}: about {_span(step.seconds)}"
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
    """Write one page with all tables, figures, curves and configurations; it needs no other file."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out: expected a file name that ends with .html, got {out}; .md and .tex come besides.")
    _write_report(make_console(), runs, out)


def _write_report(console: Console, runs: Sequence[Path], page: Path) -> None:
    from ..experiments.report import write_report

    for path in write_report(runs, page):
        console.print(f"Written: {path}", markup=False, soft_wrap=True)
