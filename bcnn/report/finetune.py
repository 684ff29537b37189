"""Before and after fine-tuning, run beside run; runs that differ in nothing but the seed are one row.

Paper: Table 2 (before | after), Table 3 right (gradient schemes).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from .tables import Column, Layout, Record, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Where, and how, not what; a row's name leaves them out.
_UNNAMED = frozenset(
    {
        "spec", "seed", "features", "preset", "batch", "workers", "device", "strict", "devices", "nodes", "memory_gb",
        "on_nonfinite", "checkpoint_minutes", "checkpoint_activations", "cache_frozen",
    }
)  # fmt: skip


def records_of(metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One record per group of runs that differ in their seeds alone, in order of their first."""
    _check(metrics)
    tables: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for own in metrics:
        tables[title_of(own)].append(own)
    records: list[dict[str, Any]] = []
    for title, members in tables.items():
        shared = _shared([own["config"] for own in members])
        rows: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for own in members:
            rows[_name(own, shared)].append(own)
        records += [{"title": title, "name": name, **_record(some)} for name, some in rows.items()]
    return records


def _check(metrics: Sequence[Mapping[str, Any]]) -> None:
    for own in metrics:
        if "finetune" not in own or own["accuracy"] is None:
            raise ValueError(
                f"compare: expected runs of bcnn train --finetune with test images, got one of {own.get('preset')} "
                f"on {own.get('dataset')} without."
            )


def _shared(configs: Sequence[Mapping[str, Any]]) -> set[str]:
    """Options that are the same in all runs."""
    names = {name for config in configs for name in config}
    return {name for name in names if all(config.get(name) == configs[0].get(name) for config in configs)}


def _name(own: Mapping[str, Any], shared: set[str]) -> str:
    """The preset, and the options that tell a run from the others."""
    options = [f"{k} {_text(v)}" for k, v in own["config"].items() if k not in shared and k not in _UNNAMED]
    return ", ".join([own["preset"], *options])


def _text(value: Any) -> str:
    return " > ".join(map(str, value)) if isinstance(value, list) else str(value)


def title_of(own: Mapping[str, Any]) -> str:
    """What runs must share to stand in one table; a choice of the epoch on the test split is said aloud."""
    tuned = own["finetune"]
    title = f"{own['dataset']}, {own['backbone']} at {own['image_size']} px, {tuned['epochs']} epochs"
    chosen = tuned["selected_on"]
    note = "EPOCH CHOSEN ON THE TEST SPLIT" if chosen == "test" else f"epoch chosen on {chosen}"
    return f"{title}, {own['num_test']} test images; {note}"


def _record(some: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    before = [own["finetune"]["before"]["accuracy"] for own in some]
    after = [own["accuracy"] for own in some]
    softmax = [own["finetune"]["softmax"]["accuracy"] for own in some]
    gain = [b - a for a, b in zip(before, after, strict=True)]
    spread = {
        f"{name}{suffix}": value
        for name, values in (("before", before), ("after", after), ("gain", gain), ("softmax", softmax))
        for suffix, value in (("", mean(values)), ("_sd", stdev(values) if len(values) > 1 else ""))
    }
    return {
        "num_seeds": len(some),
        **spread,
        "best_epochs": " ".join(str(own["finetune"]["best_epoch"]) for own in some),
        "num_skipped": sum(own["finetune"]["num_skipped"] for own in some),
        "num_exceptions": sum(own["finetune"]["num_gradient_exceptions"] for own in some),
        "minutes": mean(own["finetune"]["train_s"] for own in some) / 60,
        **some[0]["versions"],
    }


def _plot(records: Sequence[Record]) -> Figure:
    """Before and after, a pair of bars per row; a panel per table."""
    from matplotlib.figure import Figure

    tables = LAYOUT.groups(records)
    heights = [0.7 * len(rows) + 1.0 for rows in tables.values()]
    figure = Figure(figsize=(8, sum(heights) + 0.6), layout="constrained")
    panels = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, rows) in zip(panels, tables.items(), strict=True):
        for shift, name, colour in ((-0.2, "before", "silver"), (0.2, "after", "tab:blue")):
            widths = [100 * float(record[name]) for record in rows]
            spread = [100 * float(record[f"{name}_sd"] or 0) for record in rows]
            at = [i + shift for i in range(len(rows))]
            bars = axes.barh(at, widths, 0.38, xerr=spread, color=colour, label=name, capsize=3)
            axes.bar_label(bars, fmt="%.1f", label_type="center", fontsize=8)
        axes.set_yticks(range(len(rows)), [str(record["name"]) for record in rows], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("test accuracy %, standard deviation over seeds", fontsize=8)
        axes.set_title(title, fontsize=9, loc="left")
        axes.legend(fontsize=8, loc="lower right")
    return figure


def _over_seeds(key: str, title: str, sign: str = "") -> Column:
    """Mean and standard deviation over the seeds, in percent."""
    return Column(key, title, lambda record: percent(record[key], record[f"{key}_sd"], sign=sign))


LAYOUT = Layout(
    columns=(
        Column("name", "run"),
        Column("num_seeds", "seeds"),
        _over_seeds("before", "before %"),
        _over_seeds("after", "after %"),
        _over_seeds("gain", "gain", "+"),
        _over_seeds("softmax", "softmax %"),
        Column("best_epochs", "epochs chosen"),
        Column("num_skipped", "skipped"),
        Column("num_exceptions", "exceptions"),
        Column("minutes", "minutes", ".1f"),
    ),
    note="Accuracy on the test split, SVM on image and flip: of the network as it was, and fine-tuned; mean and "
    "standard deviation over the seeds. Softmax: the fine-tuned network's own last layer. Steps skipped: loss or "
    "gradient not finite. Exceptions: matrices whose gradient was infinite or NaN. Minutes: of the training steps of "
    "one run.",
    title=lambda record: str(record["title"]),
    plot=_plot,
)


def write(metrics: Sequence[Mapping[str, Any]], out: Path) -> list[dict[str, Any]]:
    """comparison.csv, .md and .png; returns the records in them."""
    records = records_of(metrics)
    LAYOUT.write(records, out / "comparison")
    return records
