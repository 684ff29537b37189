"""Puts tables of results and of options into README.md and docs/, between their markers; a test keeps them equal.

Run: python benchmarks/update_docs.py        (after: bcnn bench ... --out benchmarks/results, choose_eps.py, or a change
                                             of an option in bcnn/runs/config.py or bcnn/train/config.py)

Markers, closed by `end`: ``bench matfun: REGIME FUNCTION``; ``bench small|rivals: FUNCTION`` for small_*.csv;
``bench pooling|svm|extract|step: START OF A TITLE`` or ``all``; ``eps: BACKBONE``; ``rescale: all``; ``train: NAME``,
``finetune: NAME`` for results/train_NAME.csv and finetune_NAME.csv, the comparison.csv of a run and of `bcnn compare`;
``reproduce: ARTIFACT`` for results/*/results.jsonl, ours in detail, and ``reproduce: costs``; ``options: run|finetune``
for the options of `bcnn train`.
"""

import re
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from types import ModuleType

from bcnn.experiments import EXPERIMENTS
from bcnn.experiments.report import costs
from bcnn.experiments.results import Results
from bcnn.files import read_csv, written_whole
from bcnn.options import Names, Option, declared_by
from bcnn.report import comparison, extract, finetune, matfun, pooling, step, svm
from bcnn.report.document import Table
from bcnn.report.markdown import table_markdown
from bcnn.runs.config import RunConfig
from bcnn.train.config import FinetuneConfig, FinetuneSession

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NOT_OURS = ("The paper and ours", "The paper's", "What the authors say")
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def only(pattern: str) -> Path:
    """The one results file of that name, whatever the machine."""
    (path,) = RESULTS.glob(pattern)
    return path


def matfun_table(argument: str) -> str:
    regime, function = argument.split()
    records = read_csv(only("matfun_*.csv"))
    return matfun.markdown([r for r in records if (r["regime"], r["function"]) == (regime, function)])


def rivals_table(function: str) -> str:
    """Other packages beside ours, d = 512."""
    return matfun.markdown([r for r in read_csv(only("rivals_*.csv")) if r["function"] == function])


def small_table(function: str) -> str:
    """Rows: methods; columns: d; times as ratios to eigh + autograd in the same rounds, forward and backward."""
    records = [r for r in read_csv(only("small_*.csv")) if r["function"] == function]
    dims = list(dict.fromkeys(r["dim"] for r in records))
    lines = [f"| method | {' | '.join(f'd = {d}' for d in dims)} |", f"| --- |{' ---: |' * len(dims)}"]
    for method in dict.fromkeys(r["method"] for r in records):
        own = {r["dim"]: float(r["ratio"]) for r in records if r["method"] == method}
        lines.append(f"| {method} | {' | '.join(f'{own[d]:.2f}' for d in dims)} |")
    about = records[0]
    lines += [
        "",
        f"{about['machine']}, {about['threads']} threads, torch {about['torch']}; batches of {about['batch']}.",
    ]
    return "\n".join(lines)


def bench_table(name: str, report: ModuleType, argument: str) -> str:
    start = "" if argument == "all" else argument
    return report.markdown([r for r in read_csv(only(f"{name}_*.csv")) if r["group"].startswith(start)])


def train_table(argument: str) -> str:
    return comparison.markdown(read_csv(RESULTS / f"train_{argument}.csv"))


def finetune_table(argument: str) -> str:
    return finetune.markdown(read_csv(RESULTS / f"finetune_{argument}.csv"))


def eps_table(argument: str) -> str:
    """Rows: normalizations; columns: eps; accuracy in percent with its standard error over the folds."""
    records = read_csv(RESULTS / f"eps_{argument}.csv")
    columns = list(dict.fromkeys(float(r["eps"]) for r in records))
    lines = ["| " + " | ".join([f"{argument}, eps", *(f"{eps:g}" for eps in columns)]) + " |"]
    lines.append("| --- " + "| ---: " * len(columns) + "|")
    for name, group in groupby(records, key=lambda r: r["normalize"]):
        cells = {float(r["eps"]): f"{100 * float(r['accuracy']):.1f}" for r in group}
        lines.append("| " + " | ".join([name, *(cells.get(eps, "") for eps in columns)]) + " |")
    error = max(float(r["standard_error"]) for r in records)
    first = records[0]
    return "\n".join(lines) + (
        f"\n\nPercent, 5-fold cross-validation on {first['num_images']} images of {first['num_classes']} classes; "
        f"standard errors up to {100 * error:.1f}. {first['machine']}, torch {first['torch']}.\n"
    )


def rescale_table(argument: str) -> str:
    """Rows: datasets; columns: heads; held-out accuracy without and with rescaling, and p of the difference."""
    records = read_csv(RESULTS / "rescale.csv")
    heads = list(dict.fromkeys(r["head"] for r in records))
    lines = [f"| training images of | {' | '.join(heads)} |", f"| --- |{' --- |' * len(heads)}"]
    for dataset in dict.fromkeys(r["dataset"] for r in records):
        own = {r["head"]: r for r in records if r["dataset"] == dataset}
        cells = [
            f"{100 * float(own[h]['none']):.1f} to {100 * float(own[h]['median']):.1f} (p {float(own[h]['p']):.1g})"
            if h in own
            else ""
            for h in heads
        ]
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    return "\n".join(lines)


def reproduced(argument: str) -> str:
    """The tables of an artifact that are not the paper's own nor the overview, which the report has."""
    results = Results()
    for path in sorted((ROOT / "results").glob("*/results.jsonl")):
        results.include(Results(path))
    if argument == "costs":
        return table_markdown(costs(results))
    blocks = EXPERIMENTS[argument].blocks(results, results.subjects)
    tables = [block for block in blocks if isinstance(block, Table) and block.title not in NOT_OURS]
    return "\n\n".join(table_markdown(table).strip() for table in tables)


OPTIONS = {
    "run": declared_by(RunConfig),
    "finetune": {**declared_by(FinetuneSession), **declared_by(FinetuneConfig)},
}


def options_table(argument: str) -> str:
    """Rows: options, by panel; columns: default, what it may be, what it does."""
    panels = groupby(OPTIONS[argument].values(), key=lambda option: option.panel)
    return "\n\n".join(_panel_table(title, list(options)) for title, options in panels)


def _panel_table(title: str | None, options: list[Option]) -> str:
    lines = [f"**{title}**", ""] if title else []
    lines += ["| option | default | values | what it does |", "| --- | --- | --- | --- |"]
    for option in options:
        flags = option.name.upper() if option.argument else option.flag
        cells = (flags, option.off_flag, option.default_text or "must be given", _values(option), option.help)
        flag, off, default, values, text = (cell.replace("|", "\\|") for cell in cells)
        lines.append(f"| `{flag}`{f', `{off}`' if off else ''} | {default} | {values} | {text} |")
    return "\n".join(lines)


def _values(option: Option) -> str:
    names = option.choices.names() if isinstance(option.choices, Names) else option.choices
    if names:
        return ", ".join(f"`{name}`" for name in names)
    kind = {bool: "", int: "whole number", float: "number", str: "text"}[option.kind]
    return f"{kind} {option.range_text}".strip()


TABLES: dict[str, Callable[[str], str]] = {
    "bench matfun": matfun_table,
    "bench small": small_table,
    "bench rivals": rivals_table,
    "bench pooling": partial(bench_table, "pooling", pooling),
    "bench svm": partial(bench_table, "svm", svm),
    "bench extract": partial(bench_table, "extract", extract),
    "bench step": partial(bench_table, "step", step),
    "eps": eps_table,
    "rescale": rescale_table,
    "train": train_table,
    "finetune": finetune_table,
    "reproduce": reproduced,
    "options": options_table,
}


def rendered(text: str) -> str:
    """A page with its tables as the results files have them now."""

    def section(match: re.Match[str]) -> str:
        kind, argument = match.groups()
        return f"<!-- {kind}: {argument} -->\n{TABLES[kind](argument).strip()}\n<!-- end -->"

    kinds = "|".join(TABLES)
    text = re.sub(rf"<!-- ({kinds}): (.+?) -->\n.*?<!-- end -->", section, text, flags=re.DOTALL)
    for name in ("matfun", "pooling", "svm", "extract", "step"):
        stem = only(f"{name}_*.csv").stem
        text = re.sub(rf"(benchmarks/results/){name}_[\w.-]*?(\.(?:png|md|csv)\b)", rf"\g<1>{stem}\g<2>", text)
    return text


def main() -> None:
    for page in PAGES:
        text = rendered(page.read_text())
        with written_whole(page) as temporary:
            temporary.write_text(text)


if __name__ == "__main__":
    main()
