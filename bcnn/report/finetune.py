"""Before and after fine-tuning, run beside run; runs that differ in nothing but the seed are one row.

Paper: Table 2 (before | after), Table 3 right (gradient schemes).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from ..metrics import FineTuned, RunMetrics
from .tables import Column, Layout, Record, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Where, and how, not what; a row's name leaves them out.
_UNNAMED = frozenset(
    {
        "spec", "seed", "descriptors", "preset", "batch", "workers", "device", "engine", "strict", "devices", "nodes",
        "memory_gb", "on_nonfinite", "checkpoint_minutes", "checkpoint_activations", "cache_frozen",
    }
)  # fmt: skip


@dataclass(frozen=True)
class _Run:
    """A fine-tuned run that was tested."""

    metrics: RunMetrics
    tuned: FineTuned
    before: float
    after: float
    softmax: float

    @property
    def gain(self) -> float:
        """How much accuracy fine-tuning adds."""
        return self.after - self.before

    @property
    def title(self) -> str:
        """What runs must share to stand in one table; a choice of the epoch on the test split is said aloud."""
        own, chosen = self.metrics, self.tuned.selected_on
        note = "EPOCH CHOSEN ON THE TEST SPLIT" if chosen == "test" else f"epoch chosen on {chosen}"
        network = f"{own.dataset}, {own.backbone} at {own.image_size} px, {self.tuned.epochs} epochs"
        return f"{network}, {own.test.num_test if own.test else 0} test images; {note}"

    def name(self, shared: set[str]) -> str:
        """The preset, and the options that tell a run from the others."""
        options = self.metrics.config.items()
        named = [f"{option} {_text(value)}" for option, value in options if option not in shared | _UNNAMED]
        return ", ".join([self.metrics.preset, *named])


def records_of(metrics: Sequence[RunMetrics]) -> list[dict[str, Any]]:
    """One record per group of runs that differ in their seeds alone, in order of their first."""
    tables: dict[str, list[_Run]] = defaultdict(list)
    for run in map(_checked, metrics):
        tables[run.title].append(run)
    records = []
    for title, members in tables.items():
        shared = _shared([run.metrics.config for run in members])
        groups: dict[str, list[_Run]] = defaultdict(list)
        for run in members:
            groups[run.name(shared)].append(run)
        records += [_record(title, name, runs) for name, runs in groups.items()]
    return records


def _checked(own: RunMetrics) -> _Run:
    tuned = own.finetune
    before, softmax = (tuned.before.accuracy, tuned.softmax.accuracy) if tuned else (None, None)
    if tuned is None or own.test is None or before is None or softmax is None:
        raise ValueError(
            f"compare: expected runs of bcnn train --finetune with test images, got one of {own.preset} "
            f"on {own.dataset} without."
        )
    return _Run(own, tuned, before, own.test.accuracy, softmax)


def _shared(configs: Sequence[Mapping[str, Any]]) -> set[str]:
    """The options that are the same in all runs."""
    names = {name for config in configs for name in config}
    return {name for name in names if all(config.get(name) == configs[0].get(name) for config in configs)}


def _text(value: Any) -> str:
    return " > ".join(map(str, value)) if isinstance(value, list) else str(value)


def _record(title: str, name: str, runs: Sequence[_Run]) -> dict[str, Any]:
    """Means, and standard deviations where there are several: a line of comparison.csv."""
    accuracies = {what: [getattr(run, what) for run in runs] for what in ("before", "after", "gain", "softmax")}
    spread: dict[str, float | None] = {}
    for what, values in accuracies.items():
        spread |= {what: mean(values), f"{what}_sd": stdev(values) if len(values) > 1 else None}
    return {
        "title": title, "name": name, "num_seeds": len(runs), **spread,
        "best_epochs": " ".join(str(run.tuned.best_epoch) for run in runs),
        "num_skipped": sum(run.tuned.num_skipped for run in runs),
        "num_exceptions": sum(run.tuned.num_gradient_exceptions for run in runs),
        "minutes": mean(run.tuned.train_s for run in runs) / 60, **runs[0].metrics.versions,
    }  # fmt: skip


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


def write(metrics: Sequence[RunMetrics], out: Path) -> list[dict[str, Any]]:
    """Write comparison.csv, .md and .png; returns the records in them."""
    records = records_of(metrics)
    LAYOUT.write(records, out / "comparison")
    return records
