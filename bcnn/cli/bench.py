"""`bcnn bench`: one command per benchmark, with the options that its settings declare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..bench import BENCHMARKS, load, measure
from ..bench.settings import Settings, choose
from ..options import declared_by
from .common import device, make_console
from .options import given, with_options
from .progress import progress_bars

app = typer.Typer(help="Measure time and precision on this machine.", no_args_is_help=True)


def _command(name: str, kind: type[Settings]) -> Callable[..., None]:
    settings: type = kind

    @with_options(declared_by(settings))
    def command(
        context: typer.Context,
        out: Annotated[Path, typer.Option(help="Folder for the CSV file, the Markdown tables and the plot.")] = Path(
            "runs/bench"
        ),
        **options: Any,
    ) -> None:
        chosen = given(context, options)
        if "device" in chosen:
            chosen["device"] = device(chosen["device"])
        _run(name, choose(kind, **chosen), out)

    return command


for _name, _kind in BENCHMARKS.items():
    app.command(_name, help=_kind.__doc__)(_command(_name, _kind))


def _run(name: str, settings: Settings, out: Path) -> None:
    """Measure with progress bars, print the table, write CSV, Markdown and plot."""
    from .. import machine

    benchmark, console = load(name), make_console()
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"--out: expected a folder, got {out}, which is a file; choose another.")
    out.mkdir(parents=True, exist_ok=True)  # fails now rather than after the work
    stem = out / f"{name}_{machine.slug()}"
    benchmark.LAYOUT.check_place(stem)
    for remark in getattr(benchmark, "remarks", tuple)():
        console.print(remark, markup=False, soft_wrap=True)
    with progress_bars() as progress:
        records = measure(name, settings, progress)
    console.print(benchmark.LAYOUT.terminal(records))
    earlier = benchmark.LAYOUT.earlier(records, stem)
    benchmark.LAYOUT.write([*earlier, *records], stem)
    if earlier:
        count = len(benchmark.LAYOUT.groups(earlier))
        console.print(f"Kept beside them: {count} earlier table(s) of this machine and these versions.")
    console.print(f"Written: {stem}.csv, .md, .png", soft_wrap=True)
