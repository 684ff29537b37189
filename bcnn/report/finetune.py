"""Before and after fine-tuning, run beside run; runs that differ in nothing but the seed are one row.

Paper: Table 2 (before | after), Table 3 right (gradient schemes).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ..files import write_csv, written_whole
from .tables import Layout, Record, groups

HEADER = (
    "run", "seeds", "before %", "after %", "gain", "softmax %", "epochs chosen", "skipped", "exceptions", "minutes",
)  # fmt: skip
NOTE = (
    "Accuracy on the test split, SVM on image and flip: of the network as it was, and fine-tuned; mean and standard "
    "deviation over the seeds. Softmax: the fine-tuned network's own last layer. Steps skipped: loss or gradient not "
    "finite. Exceptions: matrices whose gradient was infinite or NaN. Minutes: of the training steps of one run."
)

# Where, and how, not what; a row's name leaves them out.
_UNNAMED = frozenset(
    {
        "spec", "seed", "features", "preset", "batch", "workers", "device", "strict", "devices", "nodes", "memory_gb",
        "on_nonfinite", "checkpoint_minutes", "checkpoint_activations", "cache_frozen",
    }
)  # fmt: skip


def records_of(metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One record a group of runs that differ in their seeds alone, in order of their first."""
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


def cells(record: Record) -> list[str]:
    """One row, as text; works on records and on those read from a CSV file alike."""

    def percent(name: str, form: str = ".1f") -> str:
        text = f"{100 * float(record[name]):{form}}"
        return f"{text} ± {100 * float(record[f'{name}_sd']):.1f}" if record[f"{name}_sd"] != "" else text

    return [
        str(record["name"]),
        str(record["num_seeds"]),
        percent("before"),
        percent("after"),
        percent("gain", "+.1f"),
        percent("softmax"),
        str(record["best_epochs"]),
        str(record["num_skipped"]),
        str(record["num_exceptions"]),
        f"{float(record['minutes']):.1f}",
    ]


LAYOUT = Layout(HEADER, cells, NOTE, lambda record: str(record["title"]))
terminal_table, markdown = LAYOUT.terminal, LAYOUT.markdown


def plot(records: Sequence[Record], path: Path) -> None:
    """Before and after, a pair of bars a row; a panel a table."""
    from matplotlib.figure import Figure

    tables = groups(records, LAYOUT.title)
    heights = [0.7 * len(rows) + 1.0 for rows in tables]
    figure = Figure(figsize=(8, sum(heights) + 0.6), layout="constrained")
    panels = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, rows in zip(panels, tables, strict=True):
        _bars(axes, rows)
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=120)


def _bars(axes: Any, records: Sequence[Record]) -> None:
    for shift, name, colour in ((-0.2, "before", "silver"), (0.2, "after", "tab:blue")):
        widths = [100 * float(record[name]) for record in records]
        spread = [100 * float(record[f"{name}_sd"] or 0) for record in records]
        at = [i + shift for i in range(len(records))]
        bars = axes.barh(at, widths, 0.38, xerr=spread, color=colour, label=name, capsize=3)
        axes.bar_label(bars, fmt="%.1f", label_type="center", fontsize=8)
    axes.set_yticks(range(len(records)), [str(record["name"]) for record in records], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("test accuracy %, standard deviation over seeds", fontsize=8)
    axes.set_title(str(records[0]["title"]), fontsize=9, loc="left")
    axes.legend(fontsize=8, loc="lower right")


def write(metrics: Sequence[Mapping[str, Any]], out: Path) -> list[dict[str, Any]]:
    """comparison.csv, .md and .png."""
    records = records_of(metrics)
    write_csv(out / "comparison.csv", records)
    with written_whole(out / "comparison.md") as temporary:
        temporary.write_text(markdown(records))
    plot(records, out / "comparison.png")
    return records
