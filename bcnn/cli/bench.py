"""`bcnn bench`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .common import device as check_device
from .common import make_console, names, numbers

app = typer.Typer(help="Measure time and precision on this machine.", no_args_is_help=True)

Tick = Callable[[str, int], None]


@app.command("matfun")
def bench_matfun(
    dims: Annotated[str | None, typer.Option(show_default="512", help="Matrix sizes d, separated by commas.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, show_default="8", help="Matrices a batch.")] = None,
    regime: Annotated[str, typer.Option(help="Of paper, rank_deficient, flat; separated by commas.")] = (
        "paper,rank_deficient,flat"
    ),
    function: Annotated[str, typer.Option(help="Of sqrt, log, power; separated by commas.")] = "sqrt,log,power",
    method: Annotated[
        str | None,
        typer.Option(show_default="all", help="Methods whose name has this in it, such as bcnn; separated by commas."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda (untested).")] = "cpu",
    rounds: Annotated[
        int | None, typer.Option(min=1, show_default="7", help="Timed rounds; every method once a round.")
    ] = None,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves the default.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Defaults of d=128, batch 4, 3 rounds: seconds.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the CSV file, the Markdown tables and the plot.")] = Path(
        "runs/bench"
    ),
) -> None:
    """Time and precision of matrix functions and their gradients, as ratios to torch.linalg.eigh + autograd."""
    from ..bench import matfun as measure
    from ..bench import rivals
    from ..report import matfun as report

    default_dims, default_batch, default_rounds = ("128", 4, 3) if quick else ("512", 8, 7)

    def run(tick: Tick) -> list[dict[str, Any]]:
        rows = measure.run(
            dims=numbers("--dims", dims or default_dims),
            batch=batch or default_batch,
            regimes=names("--regime", regime),
            functions=names("--function", function),
            device=check_device(device),
            rounds=rounds or default_rounds,
            methods=names("--method", method) if method else (),
            tick=tick,
        )
        return measure.to_records(rows)

    _measure("matfun", run, report, out, threads)
    for name, why in rivals.missing().items():
        typer.echo(f"Left out: {name}, {why}." + (" pip install 'bcnn[rivals]'" if why == "not installed" else ""))


@app.command("pooling")
def bench_pooling(
    rounds: Annotated[
        int | None, typer.Option(min=1, show_default="5", help="Timed rounds; every case once a round.")
    ] = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Do without the ImageNet weights of VGG-16 (a download).")
    ] = False,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves the default.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny network with random weights, small sizes: seconds.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the CSV file, the Markdown tables and the plot.")] = Path(
        "runs/bench"
    ),
) -> None:
    """What heads cost next to their network, what the thin path and bfloat16 save, and how exact they are."""
    from dataclasses import replace

    from ..features.bfloat16 import avoid_broken_amx

    if avoid_broken_amx():
        typer.echo("This machine's AMX does not work: bfloat16 is measured without it.")
    from ..bench import pooling as measure
    from ..report import pooling as report

    settings = measure.QUICK if quick else measure.Settings()
    settings = replace(
        settings,
        rounds=rounds or settings.rounds,
        weights=None if random_weights else settings.weights,
    )
    _measure("pooling", lambda tick: measure.to_records(measure.run(settings, tick)), report, out, threads)


@app.command("extract")
def bench_extract(
    spec: Annotated[str, typer.Argument(help="The dataset; see `bcnn datasets list`.", metavar="[SPEC]")] = "textures",
    backbone: Annotated[str | None, typer.Option(show_default="alexnet", help="The network.")] = None,
    size: Annotated[int | None, typer.Option(min=1, show_default="448", help="Side of the images.")] = None,
    flips: Annotated[bool, typer.Option(help="Describe the mirrored images, too.")] = True,
    images: Annotated[int | None, typer.Option(min=1, show_default="128", help="Images a round.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, show_default="5", help="Timed rounds.")] = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Do without ImageNet weights (a download).")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A tiny network with random weights: seconds.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the CSV file, the Markdown tables and the plot.")] = Path(
        "runs/bench"
    ),
) -> None:
    """Extraction from files to disk next to the bare network on tensors, and its memory."""
    from dataclasses import replace

    from ..bench import extract as measure
    from ..report import extract as report

    settings = measure.Settings(spec=spec, flips=flips)
    settings = measure.quick(settings) if quick else settings
    settings = replace(
        settings,
        backbone=backbone or settings.backbone,
        size=size or settings.size,
        num_images=images or settings.num_images,
        rounds=rounds or settings.rounds,
        weights=None if random_weights else settings.weights,
    )
    _measure("extract", lambda tick: measure.to_records(measure.run(settings, tick)), report, out, 0)


@app.command("svm")
def bench_svm(
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves the default.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="200 samples of 2000 features, 10 classes: seconds.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the CSV file, the Markdown tables and the plot.")] = Path(
        "runs/bench"
    ),
) -> None:
    """One-vs-rest SVMs over wide features on disk, next to scikit-learn's LinearSVC: time, memory, agreement."""
    from ..bench import svm as measure
    from ..report import svm as report

    settings = measure.QUICK if quick else measure.Settings()
    _measure("svm", lambda tick: measure.to_records(measure.run(settings, tick)), report, out, threads)


@app.command("step")
def bench_step(
    backbone: Annotated[str | None, typer.Option(show_default="alexnet", help="The network.")] = None,
    size: Annotated[int | None, typer.Option(min=1, show_default="448", help="Side of the images.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, show_default="8", help="Images a step.")] = None,
    classes: Annotated[int | None, typer.Option(min=1, show_default="200", help="Classes to tell apart.")] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, show_default="5", help="Timed rounds; a step with every head a round.")
    ] = None,
    weights: Annotated[
        str, typer.Option(help="none for random ones, default (a download), or a name of `bcnn weights list`.")
    ] = "none",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves the default.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Defaults of a tiny network at 64 pixels: seconds.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the CSV file, the Markdown tables and the plot.")] = Path(
        "runs/bench"
    ),
) -> None:
    """What a step of fine-tuning spends on data, network, pooling, matrix function, classifier and update."""
    from dataclasses import replace

    from ..bench import step as measure
    from ..report import step as report

    settings = measure.QUICK if quick else measure.Settings()
    settings = replace(
        settings,
        backbone=backbone or settings.backbone,
        size=size or settings.size,
        batch=batch or settings.batch,
        num_classes=classes or settings.num_classes,
        rounds=rounds or settings.rounds,
        weights=None if weights == "none" else weights,
    )
    _measure("step", lambda tick: measure.to_records(measure.run(settings, tick)), report, out, threads)


def _measure(name: str, run: Callable[[Tick], list[dict[str, Any]]], report: Any, out: Path, threads: int) -> None:
    """Run with progress bars, print the table, write CSV, Markdown and plot."""
    import torch
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from .. import machine

    out.mkdir(parents=True, exist_ok=True)  # fails now rather than after the work
    if threads:
        torch.set_num_threads(threads)
    console = make_console()
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    )
    tasks: dict[str, Any] = {}

    def tick(label: str, total: int) -> None:
        if label not in tasks:
            tasks[label] = progress.add_task(label, total=total)
        progress.advance(tasks[label])

    with progress:
        records = run(tick)
    console.print(report.LAYOUT.terminal(records))
    stem = out / f"{name}_{machine.slug()}"
    report.LAYOUT.write(records, stem)
    console.print(f"Written: {stem}.csv, .md, .png", soft_wrap=True)
