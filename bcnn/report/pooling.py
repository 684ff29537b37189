"""The results of `bcnn bench pooling` as tables and as a plot."""

from __future__ import annotations

from .tables import Column, Layout

LAYOUT = Layout(
    columns=(
        Column("case", "case"),
        Column("time_ms", "ms", ".2f"),
        Column("ratio", "ratio", ".3f"),
        Column("goal", "goal"),
        Column("root_error", "error", ".1e"),
        Column("gradient_error", "gradient error", ".1e"),
        Column("cosine", "descriptor cosine", ".5f"),
    ),
    note="Times an image, medians; ratios to the first line of each table, in the same rounds; errors relative to "
    "float64 and cosines to float32, the worst of the batch.",
    bars={"ratio": "time over the first line's"},
)
