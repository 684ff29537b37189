"""The results of `bcnn bench matfun` as a table in the terminal, as Markdown, and as a plot of error against time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import written_whole
from . import tables
from .tables import Record

if TYPE_CHECKING:
    from rich.table import Table

TERMINAL_HEADER = ("method", "ms", "x eigh", "fwd ms", "x eigh", "root", "gradient", "NaN", "prod.")

HEADER = ("method", "ms", "x eigh", "forward ms", "x eigh", "root error", "gradient error", "not finite", "products")


def title(record: Record) -> str:
    """What the records of one table share."""
    return f"{record['function']}, {record['regime']}, d={record['dim']}, batch {record['batch']}"


def cells(record: Record) -> list[str]:
    """One row, as text; works on a run's records and on those read from a CSV file alike."""
    return [
        str(record["method"]),
        f"{float(record['time_ms']):.2f}",
        f"{float(record['ratio']):.2f}",
        f"{float(record['forward_ms']):.2f}",
        f"{float(record['forward_ratio']):.2f}",
        tables.error(record["root_error"]),
        tables.error(record["gradient_error"]),
        str(int(record["num_nonfinite"])),
        f"{float(record['products']):.1f}",
    ]


def terminal_table(records: Sequence[Record]) -> Table:
    """One rich table, a section a group; methods with infinite or NaN results in red."""
    caption = (
        "ms a matrix, forward + backward; x eigh: over eigh + autograd; fwd: forward alone; relative errors of root "
        "and gradient; matrices not finite; d x d products"
    )
    return tables.terminal(
        records,
        title=title,
        cells=cells,
        header=TERMINAL_HEADER,
        caption=caption,
        is_bad=lambda record: int(record["num_nonfinite"]) > 0,
    )


def markdown(records: Sequence[Record]) -> str:
    """All groups as Markdown tables, the machine and versions underneath."""
    note = "Times a matrix, forward and backward, medians; errors relative to float64, the worst of the batch."
    return tables.markdown(records, title=title, cells=cells, header=HEADER, note=note)


def plot(records: Sequence[Record], path: Path) -> None:
    """Gradient error against time, a panel a table; methods with infinite or NaN gradients stand at the top."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    panels = tables.groups(records, title)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(8.5 * columns, 4.2 * rows), squeeze=False, layout="constrained")
    for panel in axes.flat[len(panels) :]:
        panel.axis("off")
    for panel, group in zip(axes.flat, panels, strict=False):
        for i, record in enumerate(group):
            finite = int(record["num_nonfinite"]) == 0
            error = min(max(float(record["gradient_error"]), 1e-9), 10.0) if finite else 10.0
            marker = "x" if not finite else "*" if str(record["method"]).startswith("bcnn.") else "o"
            name = f"{i + 1} {record['method']}" + ("" if finite else " (not finite)")
            panel.scatter(float(record["time_ms"]), error, marker=marker, s=60, label=name)
            panel.annotate(str(i + 1), (float(record["time_ms"]), error), textcoords="offset points", xytext=(5, 4))
        panel.set(xscale="log", yscale="log", title=title(group[0]), ylabel="relative error of the gradient")
        panel.set_xlabel("forward + backward, ms a matrix")
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.xaxis.set_major_formatter(ScalarFormatter())
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(True, alpha=0.2)
        panel.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=80)
    plt.close(figure)
