"""`bcnn compare`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from ..metrics import METRICS, RunMetrics, find_runs, read
from .common import Json, make_console, print_json


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of `bcnn train --finetune`.", metavar="RUNS...")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for comparison.csv, .md and .png.", show_default="none are written")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show fine-tuned runs side by side, before and after; runs that differ only in the seed share a row."""
    from ..report import finetune as report

    if out is not None:
        report.LAYOUT.check_place(out / "comparison")
    found = dict(_metrics(runs))
    metrics = list(found.values())
    records = report.write(metrics, out) if out is not None else report.records_of(metrics)
    if as_json:
        print_json(list(found.items()), rows=records)
        return
    console = make_console()
    console.print(report.LAYOUT.terminal(records))
    if out is not None:
        console.print(f"Written: {out}", markup=False, soft_wrap=True)


def _metrics(runs: Iterable[Path]) -> Iterator[tuple[Path, RunMetrics]]:
    """Every folder, or those of the presets in it, with its metrics."""
    for run in runs:
        paths = [run / METRICS] if (run / METRICS).exists() else find_runs(run, f"*/{METRICS}")
        if not paths:
            raise FileNotFoundError(
                f"compare: expected finished run folders, got {run}, which has no metrics.json; finish it "
                "by giving the command that began it again."
            )
        yield from ((path.parent, read(path)) for path in paths)
