"""The results of `bcnn bench matfun` as tables and as a plot of error against time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .tables import Column, Layout, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _is_bad(record: Record) -> bool:
    return int(record["num_nonfinite"]) > 0


def _plot(records: Sequence[Record]) -> Figure:
    """Gradient error against time, a panel per table; methods with infinite or NaN gradients stand at the top."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    tables = LAYOUT.groups(records)
    columns = min(2, len(tables))
    rows = -(-len(tables) // columns)
    figure = Figure(figsize=(8.5 * columns, 4.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for panel in panels[len(tables) :]:
        panel.axis("off")
    for panel, (title, group) in zip(panels, tables.items(), strict=False):
        for i, record in enumerate(group, start=1):
            time = float(record["time_ms"])
            error = 10.0 if _is_bad(record) else min(max(float(record["gradient_error"]), 1e-9), 10.0)
            marker = "x" if _is_bad(record) else "*" if str(record["method"]).startswith("bcnn.") else "o"
            name = f"{i} {record['method']}{' (not finite)' if _is_bad(record) else ''}"
            panel.scatter(time, error, marker=marker, s=60, label=name)
            panel.annotate(str(i), (time, error), textcoords="offset points", xytext=(5, 4))
        panel.set(xscale="log", yscale="log", title=title, ylabel="relative error of the gradient")
        panel.set_xlabel("forward + backward, ms per matrix")
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.xaxis.set_major_formatter(ScalarFormatter())
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(True, alpha=0.2)
        panel.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


LAYOUT = Layout(
    columns=(
        Column("method", "method"),
        Column("time_ms", "ms", ".2f"),
        Column("ratio", "x eigh", ".2f"),
        Column("forward_ms", "forward ms", ".2f", short="fwd ms"),
        Column("forward_ratio", "x eigh", ".2f"),
        Column("root_error", "root error", ".1e", short="root"),
        Column("gradient_error", "gradient error", ".1e", short="gradient"),
        Column("num_nonfinite", "not finite", short="NaN"),
        Column("products", "products", ".1f", short="prod."),
    ),
    note="Times a matrix, forward and backward, medians; errors relative to float64, the worst of the batch.",
    caption="ms per matrix, forward + backward; x eigh: over eigh + autograd; fwd: forward alone; relative errors of "
    "root and gradient; matrices not finite; d x d products",
    title=lambda record: f"{record['function']}, {record['regime']}, d={record['dim']}, batch {record['batch']}",
    plot=_plot,
    is_bad=_is_bad,
)
