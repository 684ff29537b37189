"""The results of `bcnn bench extract` as tables and as a plot."""

from __future__ import annotations

from .tables import Column, Layout

LAYOUT = Layout(
    columns=(
        Column("case", "case"),
        Column("images_per_s", "images/s", ".1f"),
        Column("share", "of the bare network", ".2f"),
        Column("goal", "goal"),
        Column("memory_mb", "MB", ".0f"),
    ),
    note="Medians; shares from the same rounds; memory is the most that was resident.",
    bars={"images_per_s": "images/s", "memory_mb": "MB resident"},
)
