"""The results of `bcnn bench svm` as a table and as a plot."""

from __future__ import annotations

from .tables import Column, Layout, Record


def _ratio(record: Record, key: str) -> str:
    number = float(record[key])
    return f"1/{1 / number:.1f}" if number < 1 else f"{number:.1f}"


LAYOUT = Layout(
    columns=(
        Column("case", "case"),
        Column("total_s", "all classes, s", ".1f"),
        Column("slowest_s", "slowest, s", ".1f"),
        Column("ratio", "ratio", lambda record: _ratio(record, "ratio")),
        Column("time_goal", "goal"),
        Column("memory_mb", "MB", ".0f"),
        Column("memory_ratio", "ratio", lambda record: _ratio(record, "memory_ratio")),
        Column("memory_goal", "goal"),
        Column("difference", "decision values off by", ".1e"),
    ),
    note="Features are read from a file, each case in a process of its own; MB: the most that was resident. Times are "
    "of the fastest round; ratios to the first line, whose time is scaled to all classes from the problems it solved, "
    "its preparations counted once; decision values against the first line's, which stops at its tolerance.",
    bars={"total_s": "s, all classes", "memory_mb": "MB, resident"},
)
