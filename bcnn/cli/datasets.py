"""`bcnn datasets`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import pick
from ..runs.config import RunConfig
from .common import is_given, make_console, print_broken
from .options import with_options
from .progress import progress_bars

if TYPE_CHECKING:
    from rich.console import Console

    from ..data.check import CheckReport
    from ..data.contract import DatasetKind

app = typer.Typer(help="Datasets: what can be read, and whether yours is sound.", no_args_is_help=True)

# What looking at labels has to know of the network, which is AlexNet unless another one is named: the fastest.
LABELS = pick(RunConfig, "backbone", "preset", "weights", "size", "classifier", "C", "seed", "batch", "workers")
LABELS["backbone"] = replace(LABELS["backbone"], default="alexnet")
SHOWN = 20  # broken files, copies, ignored files


@app.command("list")
def list_datasets() -> None:
    """List every kind of dataset, its layout and its options."""
    from rich.table import Table

    from ..data import DATASETS

    table = Table(title="datasets", title_justify="left", show_lines=True)
    for name in ("SPEC", "about", "layout", "options"):
        table.add_column(name, overflow="fold")
    for name, kind in DATASETS.items():
        table.add_row(name if kind.built_in else f"{name}:PATH", kind.about, kind.layout, _options(kind))
    console = make_console()
    console.print(table, markup=False)
    console.print(
        "A path without a prefix is read as folder:, a .csv or .tsv file as csv:. Options follow after commas, such as"
    )
    console.print("  bcnn datasets check aircraft:PATH,level=family", markup=False)


@app.command("check")
@with_options(LABELS)
def check(
    spec: Annotated[str, typer.Argument(help="The dataset: a folder, or see `bcnn datasets list`.", metavar="SPEC")],
    context: typer.Context,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if images are broken or in both splits.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    labels: Annotated[
        bool,
        typer.Option("--labels", help="Instead, look for training images whose label a classifier contradicts."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="With --labels, the folder to write to.", show_default="runs/labels_<dataset>_<backbone>"),
    ] = None,
    **options: Any,
) -> None:
    """Decode every image: counts, sizes, broken files, and copies of test images among the training images.

    With --labels the training images are described and cross-validated instead. Those that look more like another class
    than like their label are listed on a page of photographs and in a table, the least probable label first.
    """
    if labels:
        _check_labels(RunConfig(spec=spec, **options), out)
        return
    typed = [name for name in (*options, "out") if is_given(context, name)]
    if typed:
        raise ValueError(f"--{typed[0].replace('_', '-')}: expected it together with --labels, got it alone.")
    from dataclasses import asdict

    from ..data.check import check as check_dataset
    from ..data.spec import load_dataset

    dataset = load_dataset(spec)
    with progress_bars(transient=True) as progress:
        report = check_dataset(dataset, progress)
    if as_json:
        typer.echo(json.dumps({**asdict(report), "clean": report.clean}, indent=1))
    else:
        _print(report)
    if strict and not report.clean:
        raise typer.Exit(1)


def _check_labels(config: RunConfig, out: Path | None) -> None:
    from ..data.contract import shown
    from ..report.labels import percent
    from ..runs.labels import PAGE, TABLE, check_labels
    from .train import default_name

    if len(config.preset) != 1:
        raise ValueError(f"--preset: expected one with --labels, got {len(config.preset)}.")
    place = out or Path("runs") / f"labels_{default_name(config)}"
    with progress_bars() as progress:
        done = check_labels(config, place, progress)
    console = make_console()
    print_broken(console, done.broken, done.num_images + len(done.broken))
    rows = [
        [shown(one.sample.name), shown(one.label), shown(one.instead), percent(one.probability), percent(one.own)]
        for one in done.found
    ]
    if rows:
        names = ["image", "label", "looks like", "probability", "of its label"]
        _print_table(console, "labels that are contradicted", names, rows,
                     rest=f"and {len(rows) - SHOWN} more on the page and in the table.")  # fmt: skip
    console.print(
        f"{len(rows)} of {done.num_images} training images look like another class; held-out accuracy "
        f"{100 * done.accuracy:.1f} %. Written: {place / PAGE}, {place / TABLE}",
        markup=False, soft_wrap=True,
    )  # fmt: skip


def _options(kind: DatasetKind) -> str:
    """Names with their defaults, where the loader's signature has one."""
    from inspect import signature

    defaults = {name: parameter.default for name, parameter in signature(kind.load).parameters.items()}
    names = [option.name for option in kind.options]
    return "\n".join(name if defaults[name] is None else f"{name}={defaults[name]}" for name in names)


def _print(report: CheckReport) -> None:
    from ..data.contract import shown

    console = make_console()
    _print_counts(console, report)
    if report.ignored:
        _print_table(console, f"ignored (no images, or classes without any): {len(report.ignored)}", ["name"],
                     [[shown(name)] for name in report.ignored])  # fmt: skip
    if report.broken:
        rows = [[shown(broken.name), broken.split, shown(broken.reason)] for broken in report.broken]
        _print_table(console, f"broken: {len(rows)}", ["name", "split", "why"], rows)
    if report.copies:
        rows = []
        for copy in report.copies:
            remarks = [
                ("the same pixels", copy.exact),
                ("mirrored", copy.mirrored),
                ("other class", not copy.same_class),
            ]
            remark = ", ".join(text for text, holds in remarks if holds)
            rows.append([shown(copy.test), shown(copy.train), f"{copy.similarity:.3f}", remark])
        title = f"test images with a copy among the training images: {len(rows)}"
        _print_table(console, title, ["test", "train", "similarity", "remark"], rows)
    sound = "every image can be read, none is in both splits"
    if not report.clean:
        sound = f"{len(report.broken)} broken, {len(report.copies)} in both splits"
    console.print(f"{shown(report.dataset)}: {sound}.", markup=False, soft_wrap=True)


def _print_counts(console: Console, report: CheckReport) -> None:
    rows = [
        [split, f"{c.images}", f"{c.classes} of {report.num_classes}", f"{c.smallest} / {c.median:g} / {c.largest}"]
        for split, c in report.counts.items()
    ]
    _print_table(
        console, report.dataset, ["split", "images", "classes", "images per class: least / median / most"], rows
    )
    if report.smallest_size and report.largest_size:
        least, most = (f"{width} x {height}" for width, height in (report.smallest_size, report.largest_size))
        console.print(f"Sizes from {least} to {most} pixels.")


def _print_table(
    console: Console, title: str, columns: list[str], rows: list[list[str]], *, rest: str | None = None
) -> None:
    """At most SHOWN rows, and how many more there are; names are never read as markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows[:SHOWN]:
        table.add_row(*map(Text, row))
    console.print(table)
    if len(rows) > SHOWN:
        console.print(rest or f"and {len(rows) - SHOWN} more (all of them with --json).")
