"""`bcnn predict` and `bcnn evaluate`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..files import at_home
from ..options import pick
from ..runs.config import RunConfig
from .common import Json, make_console, print_broken, print_json
from .common import device as check_device
from .options import with_options
from .progress import is_verbose, progress_bars

if TYPE_CHECKING:
    from ..metrics import Prediction

FORMATS = ("table", "csv", "json", "jsonl")
PIECE = 20  # images of a table that are drawn at a time
Run = Annotated[Path, typer.Argument(help="A run folder of `bcnn train`, or a model's file.", metavar="RUN")]
WORK = pick(RunConfig, "batch", "workers", "strict", "device", "engine")


@with_options(WORK, config=True)
def predict(
    run: Run,
    images: Annotated[
        list[str], typer.Argument(help="Files and folders; - reads names from standard input.", metavar="IMAGES...")
    ],
    top: Annotated[str, typer.Option(help="How many classes: a number, or all.")] = "5",
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "table",
    out: Annotated[
        Path | None,
        typer.Option(
            help="A new file that ends with .csv, .json or .jsonl, instead of standard output. If it is "
            "interrupted, the same command continues."
        ),
    ] = None,
    **options: Any,
) -> None:
    """Recognize images: the most probable classes of each, as soon as they are known.

    An image that cannot be read is named on the error stream, and the command ends with exit code 1.
    """
    if form not in FORMATS:
        raise ValueError(f"--format: expected one of {', '.join(FORMATS)}, got {form!r}.")
    if not re.fullmatch("all|0*[1-9][0-9]{0,8}", top):
        raise ValueError(f"--top: expected a number from 1 on, or all, got {top!r}.")
    from ..data.contract import shown
    from ..runs import predict as work
    from ..runs import sheet

    if out is not None:
        sheet.check_name(out)
    recognizer = work.open_run(run, **{**options, "device": check_device(options["device"])})
    most = len(recognizer.classes)
    count = most if top == "all" else min(int(top), most)
    paths = work.find_images(names_from_stdin(images))
    with progress_bars(show=len(paths) > options["batch"] and _shows_progress(out)) as progress:
        if out is None:
            broken: list[str] = []
            found = _good(work.predict(recognizer, paths, progress, top=count), broken)
            _print(found, form, count, num_images=len(paths))
        else:
            page = sheet.Sheet(out, sheet.identity_of(work.model_of(run), paths, top=count))
            for result in work.predict(recognizer, paths[page.num_done :], progress, top=count):
                page.add(result)
            broken = page.finish(top=count)
    if out is not None:
        make_console().print(f"{len(paths) - len(broken)} images. Written: {out}", markup=False, soft_wrap=True)
    for error in broken:
        typer.secho(f"bcnn: {shown(error)}", fg=typer.colors.YELLOW, err=True)
    if broken:
        typer.secho(f"bcnn: {len(broken)} of {len(paths)} images could not be read.", fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(1)


@with_options(pick(RunConfig, "spec"), WORK, config=True)
def evaluate(
    run: Run,
    spec: str,
    split: Annotated[str, typer.Option(help="One of test, train, all.")] = "test",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write to.", show_default="evaluate_<dataset>_<split> in RUN"),
    ] = None,
    as_json: Json = False,
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
    if as_json:
        print_json([(place, metrics)])
        return
    console = make_console()
    test, broken = metrics.test, metrics.broken
    print_broken(console, broken, test.num_test + len(broken))
    console.print(
        f"accuracy {percent(test.accuracy)} % ({interval(*test.interval95)}) on {test.num_test} "
        f"images of {metrics.dataset} ({split}). Written: {place}",
        markup=False, soft_wrap=True,
    )  # fmt: skip


def names_from_stdin(images: list[str]) -> list[str]:
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


def _shows_progress(out: Path | None) -> bool:
    """In a terminal, unless rows appear there; in lines, if those are asked for."""
    return is_verbose() or (sys.stderr.isatty() and (out is not None or not sys.stdout.isatty()))


def _good(results: Iterator[Prediction | OSError], broken: list[str]) -> Iterator[Prediction]:
    """The predictions; what is wrong with other images goes into the list."""
    for result in results:
        if isinstance(result, OSError):
            broken.append(str(result))
        else:
            yield result


def _print(found: Iterator[Prediction], form: str, top: int, *, num_images: int) -> None:
    """Rows as they come; a table of many images in pieces of one width."""
    if form != "table":
        from ..runs.predictions import to_lines

        for line in to_lines(found, form, top=top):
            typer.echo(line, nl=False)
        return
    console, first = make_console(), True
    while piece := list(islice(found, PIECE)):
        console.print(_table(piece, header=first, whole_width=num_images > PIECE))
        first = False


def _table(found: Sequence[Prediction], *, header: bool, whole_width: bool) -> Any:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from ..data.contract import shown

    table = Table(box=box.SIMPLE_HEAD, show_header=header, expand=whole_width)
    for name, justify, ratio in (("image", "left", 6), ("class", "left", 3), ("probability", "right", 1)):
        table.add_column(name, justify=justify, overflow="fold", ratio=ratio)  # type: ignore[arg-type]
    for prediction in found:
        table.add_section()
        for i, (name, share) in enumerate(prediction.top):
            image = escape(shown(prediction.name)) if i == 0 else ""
            table.add_row(image, escape(shown(name)), f"{100 * share:.1f} %", style="bold" if i == 0 else None)
    return table
