"""Puts tables of results and of options into README.md and docs/, between their markers; a test keeps them equal.

Run: python benchmarks/update_docs.py        (after: bcnn bench ... --out benchmarks/results, choose_eps.py, or a change
                                             of an option in bcnn/runs/config.py or bcnn/finetune/config.py)

Markers, closed by `end`: ``bench matfun: REGIME FUNCTION``; ``bench small|rivals: FUNCTION`` for small_*.csv;
``bench pooling|svm|extract|step: START OF A TITLE`` or ``all``; ``eps: BACKBONE``; ``rescale: all``; ``labels: all``;
``train: NAME``, ``finetune: NAME`` for results/train_NAME.csv and finetune_NAME.csv, the comparison.csv of a run and of
`bcnn compare`;
``results: NAME`` for benchmarks/results/NAME.md as it is;
``reproduce: ARTIFACT`` for results/*/results.jsonl, ours in detail, and ``reproduce: costs``; ``options: run|finetune``
for the options of `bcnn train`; ``session: NAMES`` for commands of record_sessions.py and what they printed;
``commands: all`` for the commands of `bcnn`.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from typer.main import get_command

from bcnn.bench import BENCHMARKS, load
from bcnn.cli import app
from bcnn.experiments import EXPERIMENTS
from bcnn.experiments.report import costs
from bcnn.experiments.results import Results
from bcnn.files import read_csv, written_whole
from bcnn.finetune.config import FinetuneConfig, FinetuneSession
from bcnn.options import Names, Option, declared_by
from bcnn.report import comparison, finetune
from bcnn.report.document import Table
from bcnn.report.markdown import table_markdown
from bcnn.report.tables import interval, percent
from bcnn.runs.config import RunConfig

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NOT_OURS = ("The paper and ours", "The paper's", "What the authors say")
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def only(pattern: str) -> Path:
    """The one results file of that name, whatever the machine."""
    (path,) = RESULTS.glob(pattern)
    return path


def crossed(
    corner: str, cells: dict[tuple[str, Any], str], columns: dict[Any, str], *, note: str = "", num_labels: int = 1
) -> str:
    """Rows by the first key of the cells, columns by the second."""
    names = dict.fromkeys(row for row, _ in cells)
    rows = tuple((name, *(cells.get((name, column), "") for column in columns)) for name in names)
    return table_markdown(Table("", (corner, *columns.values()), rows, num_labels=num_labels, note=note))


def matfun_table(argument: str) -> str:
    regime, function = argument.split()
    records = read_csv(only("matfun_*.csv"))
    return load("matfun").LAYOUT.markdown([r for r in records if (r["regime"], r["function"]) == (regime, function)])


def rivals_table(function: str) -> str:
    """Other packages beside ours, d = 512."""
    records = read_csv(only("rivals_*.csv"))
    return load("matfun").LAYOUT.markdown([r for r in records if r["function"] == function])


def small_table(function: str) -> str:
    """Rows: methods; columns: d; times as ratios to eigh + autograd in the same rounds, forward and backward."""
    records = [r for r in read_csv(only("small_*.csv")) if r["function"] == function]
    dims = list(dict.fromkeys(r["dim"] for r in records))
    ratios = {(r["method"], r["dim"]): f"{float(r['ratio']):.2f}" for r in records}
    about = records[0]
    note = f"{about['machine']}, {about['threads']} threads, torch {about['torch']}; batches of {about['batch']}."
    return crossed("method", ratios, {d: f"d = {d}" for d in dims}, note=note)


def bench_table(name: str, argument: str) -> str:
    start = "" if argument == "all" else argument
    records = read_csv(only(f"{name}_*.csv"))
    return load(name).LAYOUT.markdown([r for r in records if r["group"].startswith(start)])


def train_table(argument: str) -> str:
    return comparison.LAYOUT.markdown(read_csv(RESULTS / f"train_{argument}.csv"))


def finetune_table(argument: str) -> str:
    return finetune.LAYOUT.markdown(read_csv(RESULTS / f"finetune_{argument}.csv"))


def eps_table(argument: str) -> str:
    """Rows: normalizations; columns: eps; accuracy in percent with its standard error over the folds."""
    records = read_csv(RESULTS / f"eps_{argument}.csv")
    columns = list(dict.fromkeys(float(r["eps"]) for r in records))
    accuracies = {(r["normalize"], float(r["eps"])): percent(r["accuracy"]) for r in records}
    error = max(float(r["standard_error"]) for r in records)
    first = records[0]
    note = (
        f"Percent, 5-fold cross-validation on {first['num_images']} images of {first['num_classes']} classes; "
        f"standard errors up to {percent(error)}. {first['machine']}, torch {first['torch']}."
    )
    return crossed(f"{argument}, eps", accuracies, {eps: f"{eps:g}" for eps in columns}, note=note)


def rescale_table(argument: str) -> str:
    """Rows: datasets; columns: heads; held-out accuracy without and with rescaling, and p of the difference."""
    records = read_csv(RESULTS / "rescale.csv")
    heads = {r["head"]: r["head"] for r in records}
    changes = {
        (r["dataset"], r["head"]): f"{interval(r['none'], r['median'])} (p {float(r['p']):.1g})" for r in records
    }
    return crossed("training images of", changes, heads, num_labels=1 + len(heads))


def recipes_table(argument: str) -> str:
    """Rows: recipes; columns: seeds; held-out accuracy before and after the last epoch, and the mean afterwards."""
    records = read_csv(RESULTS / "recipes.csv")
    seeds = {r["seed"]: f"seed {r['seed']}" for r in records}
    cells = {(r["recipe"], r["seed"]): f"{percent(r['before'])} to {percent(r['after'])}" for r in records}
    for recipe in dict.fromkeys(r["recipe"] for r in records):
        own = [float(r["after"]) for r in records if r["recipe"] == recipe]
        cells[recipe, "mean"] = percent(sum(own) / len(own))
    return crossed("recipe", cells, {**seeds, "mean": "mean, after"}, num_labels=2 + len(seeds))


def views_table(argument: str) -> str:
    """Rows: networks and presets; columns: ways to train; held-out accuracy, p against both views, test accuracy."""
    records = read_csv(RESULTS / "views.csv")
    ways = {r["way"]: r["way"] for r in records}
    cells = {
        (f"{r['network']}, {r['preset']}", r["way"]): f"{percent(r['held_out'])}"
        + (f" (p {float(r['p']):.1g})" if r["way"] != "both" else "")
        + f", test {percent(r['test'])}"
        for r in records
    }
    return crossed("trained on", cells, ways, num_labels=1 + len(ways))


def labels_table(argument: str) -> str:
    """Flipped labels that are found, method by method, of every dataset."""
    records = read_csv(RESULTS / "labels.csv")
    rows = tuple(
        (
            r["dataset"], r["method"], percent(r["recall"]), percent(r["precision"]), f"{float(r['listed']):.0f}",
            percent(r["held_out_accuracy"]),
        )
        for r in records
    )  # fmt: skip
    header = ("training images of", "method", "recall %", "precision %", "listed", "held-out accuracy %")
    return table_markdown(Table("", header, rows, num_labels=2))


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


def session(argument: str) -> str:
    """Commands and what they printed when they were recorded, with the machine; their names with spaces between."""
    records = json.loads((RESULTS / "sessions.json").read_text())
    shown, about = [records["sessions"][name] for name in argument.split()], records["machine"]
    text = "\n\n".join(f"$ {one['command']}\n{one['output']}" for one in shown)
    machine = f"{about['machine']}, {about['threads']} threads, torch {about['torch']}, Python {about['python']}"
    return f"```console\n{text}\n```\n\n*Recorded on {machine}.*"


def commands_table(argument: str) -> str:
    """Every command in the order of `bcnn --help`, with the first sentence of its help."""
    lines = ["| command | what it does |", "| --- | --- |"]
    for words, command in _commands(get_command(app), ("bcnn",)):
        about = (command.help or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        lines.append(f"| `{' '.join(words)}` | {about} |")
    return "\n".join(lines)


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        if getattr(inner, "commands", None):
            yield from _commands(inner, (*words, name))
        else:
            yield (*words, name), inner


TABLES: dict[str, Callable[[str], str]] = {
    "results": lambda name: (RESULTS / f"{name}.md").read_text(),
    **{f"bench {name}": partial(bench_table, name) for name in BENCHMARKS},
    "bench matfun": matfun_table,
    "bench small": small_table,
    "bench rivals": rivals_table,
    "eps": eps_table,
    "rescale": rescale_table,
    "recipes": recipes_table,
    "labels": labels_table,
    "train": train_table,
    "finetune": finetune_table,
    "reproduce": reproduced,
    "views": views_table,
    "options": options_table,
    "session": session,
    "commands": commands_table,
}


def rendered(text: str) -> str:
    """A page with its tables as the results files have them now."""

    def section(match: re.Match[str]) -> str:
        kind, argument = match.groups()
        return f"<!-- {kind}: {argument} -->\n{TABLES[kind](argument).strip()}\n<!-- end -->"

    kinds = "|".join(TABLES)
    text = re.sub(rf"<!-- ({kinds}): (.+?) -->\n.*?<!-- end -->", section, text, flags=re.DOTALL)
    for name in BENCHMARKS:
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
