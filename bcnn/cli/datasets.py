"""`bcnn datasets`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from .common import make_console
from .progress import progress_bars

if TYPE_CHECKING:
    from rich.console import Console

    from ..data.check import CheckReport
    from ..data.contract import DatasetKind

app = typer.Typer(help="Datasets: what can be read, and whether yours is sound.", no_args_is_help=True)

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
        "A folder alone is read as folder:, a .csv or .tsv file as csv:. Options follow after commas, such as"
    )
    console.print("  bcnn datasets check aircraft:PATH,level=family", markup=False)


@app.command("check")
def check(
    spec: Annotated[str, typer.Argument(help="The dataset: a folder, or see `bcnn datasets list`.", metavar="SPEC")],
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if images are broken or in both splits.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Decode every image: counts, sizes, broken files, and copies of test images among the training images."""
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


def _print_table(console: Console, title: str, columns: list[str], rows: list[list[str]]) -> None:
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
        console.print(f"and {len(rows) - SHOWN} more (all of them with --json).")
