"""`bcnn predict` and `bcnn evaluate`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..files import at_home
from ..options import pick
from ..runs.config import RunConfig
from .common import device as check_device
from .common import make_console, print_broken
from .options import with_options
from .progress import progress_bars

FORMATS = ("table", "json", "csv")
Run = Annotated[Path, typer.Argument(help="A run folder of `bcnn train`, or a model's file.", metavar="RUN")]
WORK = pick(RunConfig, "batch", "workers", "strict", "device", "engine")


@with_options(WORK, config=True)
def predict(
    run: Run,
    images: Annotated[
        list[str], typer.Argument(help="Files and folders; - reads names from standard input.", metavar="IMAGES...")
    ],
    top: Annotated[int, typer.Option(min=1, max=5, help="How many classes.")] = 5,
    form: Annotated[str, typer.Option("--format", help="Of table, json, csv.")] = "table",
    **options: Any,
) -> None:
    """Say what is on images, with probabilities.

    An image that cannot be read is named on the error stream, and the command ends with exit code 1.
    """
    if form not in FORMATS:
        raise ValueError(f"--format: expected one of {', '.join(FORMATS)}, got {form!r}.")
    from ..data.contract import shown
    from ..runs import predict as work

    strict = options.pop("strict")
    recognizer = work.open_run(run, **{**options, "device": check_device(options["device"])})
    paths = work.find_images(_from_stdin(images))
    found, broken = [], []
    with progress_bars(show=len(paths) > options["batch"] and sys.stderr.isatty()) as progress:
        for result in work.predict(recognizer, paths, progress):
            if isinstance(result, OSError):
                if strict:
                    raise result
                broken.append(result)
            else:
                found.append(result)
    _print(found, form, top)
    for error in broken:
        typer.secho(f"bcnn: {shown(str(error))}", fg=typer.colors.YELLOW, err=True)
    if broken:
        typer.secho(f"bcnn: {len(broken)} of {len(paths)} images could not be read.", fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(1)


@with_options(pick(RunConfig, "spec"), WORK, config=True)
def evaluate(
    run: Run,
    spec: str,
    split: Annotated[str, typer.Option(help="Of test, train, all.")] = "test",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write to.", show_default="evaluate_<dataset>_<split> in RUN"),
    ] = None,
    **options: Any,
) -> None:
    """Measure a trained classifier on a dataset that has the same classes, or some of them."""
    if split not in ("test", "train", "all"):
        raise ValueError(f"--split: expected test, train or all, got {split!r}.")
    from ..report.tables import interval, percent
    from ..runs import predict as work

    recognizer = work.open_run(run, **{**options, "device": check_device(options["device"])})
    place = out or (run if run.is_dir() else run.parent) / f"evaluate_{_file_name(spec)}_{split}"
    if out is None and place.is_symlink():
        raise ValueError(f"evaluate: expected no link at {place}, got one, which leads elsewhere; say where by --out.")
    with progress_bars() as progress:
        metrics = work.evaluate(recognizer, spec, place, split=split, progress=progress)
    console = make_console()
    test, broken = metrics.test, metrics.broken
    print_broken(console, broken, test.num_test + len(broken))
    console.print(
        f"accuracy {percent(test.accuracy)} % ({interval(*test.interval95)}) on {test.num_test} "
        f"images of {metrics.dataset} ({split}). Written: {place}",
        markup=False, soft_wrap=True,
    )  # fmt: skip


def _from_stdin(images: list[str]) -> list[str]:
    """In the place of "-", names by lines, or between zeros as `find -print0` has them."""
    names: list[str] = []
    for image in images:
        text = sys.stdin.buffer.read() if image == "-" else b""
        lines = text.split(b"\0") if b"\0" in text else text.splitlines()
        names += [image] if image != "-" else [os.fsdecode(line) for line in lines]
    return [name for name in names if name]


def _file_name(spec: str) -> str:
    from ..data.spec import split_spec

    kind, path, _ = split_spec(spec)
    return f"{kind}_{at_home(path).resolve().name}" if path else kind


def _print(found: list[Any], form: str, top: int) -> None:
    from dataclasses import replace

    from ..runs.predictions import to_csv, to_record

    found = [replace(prediction, top=prediction.top[:top]) for prediction in found]
    if form == "json":
        typer.echo(json.dumps([to_record(prediction) for prediction in found], indent=1))
    elif form == "csv":
        typer.echo(to_csv(found), nl=False)
    elif found:
        make_console().print(_table(found))


def _table(found: list[Any]) -> Any:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from ..data.contract import shown

    table = Table(box=box.SIMPLE_HEAD)
    for name, justify in (("image", "left"), ("class", "left"), ("probability", "right")):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for prediction in found:
        table.add_section()
        for i, (name, share) in enumerate(prediction.top):
            image = escape(shown(prediction.name)) if i == 0 else ""
            table.add_row(image, escape(shown(name)), f"{100 * share:.1f} %", style="bold" if i == 0 else None)
    return table
