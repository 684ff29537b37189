"""From measurements and run folders to one document: artifacts, curves, confusions, times, configurations."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..classify.accuracy import accuracy_of
from ..data.contract import shown
from ..files import read_text, written_whole
from ..metrics import METRICS, Epoch, RunMetrics, find_runs, read
from ..report.classes import confusion_figure
from ..report.curves import curves_figure
from ..report.document import Details, Document, Picture, Section, Table, picture_of
from ..report.latex import render_latex
from ..report.markdown import render_markdown
from ..report.page import write_page
from ..report.tables import interval, percent
from . import EXPERIMENTS
from .jobs.frozen import Frozen, FrozenResult
from .jobs.tuned import Tuned, ridge_in
from .records import Subject, Tested
from .results import FILE, Results, job_to_plain
from .run_folder import TunedResult, answers
from .table1_normalization import job as row
from .tables import NOT_RUN, found_of, title_of

TITLES = ("Improved bilinear pooling, reproduced", "Runs of bcnn train")
SUFFIXES = {".md": render_markdown, ".tex": render_latex}
LEAD = (
    "Tables and figures of “Improved Bilinear Pooling with CNNs” (Lin and Maji, BMVC 2017), measured again with bcnn: "
    "the paper's numbers, ours, and the difference. What was not measured says “not run”.",
    "A difference is that of two experiments: weights, preprocessing, ridge and, where a title says so, the images are "
    "not the paper's. Gains over the first row of a table, on the same images, are what can be compared best.",
)
MOST_CONFUSED = 12


def write_report(folders: Sequence[Path], page: Path) -> list[Path]:
    """The page, and its tables in Markdown and LaTeX beside it; returns what was written."""
    for path in (page, *map(page.with_suffix, SUFFIXES)):
        _check_ours(path)
    document = make_document(folders)
    write_page(document, page)
    for suffix, render in SUFFIXES.items():
        with written_whole(page.with_suffix(suffix)) as temporary:
            temporary.write_text(render(document), encoding="utf-8", errors="backslashreplace")
    return [page, *map(page.with_suffix, SUFFIXES)]


def _check_ours(path: Path) -> None:
    """A report is made again and again; nobody's own README.md is to be lost that way."""
    text = read_text(path, errors="replace") if path.exists() else ""
    first = text.partition("\n")[0].lstrip("#% ")
    if text and first not in TITLES and not any(f"<title>{title}</title>" in text for title in TITLES):
        raise FileExistsError(f"--out: expected {path} to be new or an earlier report, got another file; rename one.")


def make_document(folders: Sequence[Path]) -> Document:
    """Everything that the folders have: results of `bcnn reproduce`, and runs of `bcnn train`."""
    results, runs = _gather(folders)
    sections: list[Section] = []
    if results.subjects:
        sections += [*_artifacts(results), *_curves(results), *_confusions(results), _times(results), _about(results)]
    sections += [_run(folder, number) for number, folder in enumerate(runs, 1)]
    lead = (*LEAD, _datasets(results)) if results.subjects else ()
    return Document(TITLES[0 if results.subjects else 1], lead, tuple(sections))


def _gather(folders: Sequence[Path]) -> tuple[Results, list[Path]]:
    """Join all results, and find the run folders."""
    together, runs = Results(), []
    for folder in folders:
        paths = [folder] if folder.is_file() else [*sorted(folder.glob(FILE)), *sorted(folder.glob(f"*/{FILE}"))]
        measured = [path.parent for path in paths]
        found = [path.parent for path in find_runs(folder, METRICS, f"*/{METRICS}", f"*/*/{METRICS}")]
        found = [run for run in found if not any(own in run.parents for own in measured)]  # those are part of it
        for path in paths:
            together.include(Results(path))
        runs += found
        if not paths and not found:
            raise FileNotFoundError(
                f"report: expected folders with {FILE} or metrics.json, got {folder}; "
                "finish what began it, or give another folder."
            )
    for subject in together.subjects:
        if (subject.dataset, subject.images) not in together.datasets:
            raise ValueError(
                f"report: expected a line on every dataset in {FILE}, got none on {shown(subject.dataset)!r}; the file "
                "is damaged."
            )
    return together, runs


def _datasets(results: Results) -> str:
    said = [
        f"{own.dataset}: {own.num_classes} classes, {own.num_train} training and {own.num_test} test images"
        for own in results.datasets.values()
    ]
    found = (own.result for own in results.measurements.values())
    broken = max((own.num_broken for own in found if isinstance(own, Tested | TunedResult)), default=0)
    left_out = f" Images that could not be read and were left out: up to {broken} of a dataset." if broken else ""
    return f"Datasets: {'; '.join(said)}.{left_out}"


def _artifacts(results: Results) -> Iterable[Section]:
    for name, experiment in EXPERIMENTS.items():
        blocks = tuple(experiment.blocks(results, results.subjects))
        what, *rest = [" ".join(part.split()) for part in experiment.about.strip().split("\n\n")]
        what = what.removeprefix(f"{experiment.title}: ")  # which is the heading
        what = what[0].upper() + what[1:]
        text = (what, *(part for part in rest if not part.startswith("Run:")))
        if not blocks:
            text = (*text, f"No measurement: {NOT_RUN}.")
        yield Section(experiment.title, name, text, blocks)


def _curves(results: Results) -> Iterable[Section]:
    """Held-out loss and accuracy by epoch, one line per scheme."""
    from matplotlib.figure import Figure

    groups: dict[Subject, dict[str, list[tuple[Epoch, ...]]]] = defaultdict(lambda: defaultdict(list))
    for job, own in results.measurements.items():
        if isinstance(job, Tuned) and isinstance(own.result, TunedResult):
            options = json.loads(job.options)
            subject = Subject(
                job.dataset, job.images, job.network, job.weights, job.parameters, tuned_size=job.size,
                epochs=job.epochs, recipe=job.recipe, freeze_until=options["finetune"]["freeze_until"],
                rescale=options["rescale"], ridge=ridge_in(options), flips=options.get("flips", True),
            )  # fmt: skip
            groups[subject][job.scheme].append(own.result.history)
    blocks = []
    for subject, schemes in groups.items():
        title = title_of(results, subject, subject.tuned_size, tuned=True)
        figure = Figure(figsize=(9, 3.8), layout="constrained")
        for axes, what, scale in zip(figure.subplots(1, 2), ("val_loss", "val_accuracy"), (1, 100), strict=True):
            _draw(axes, schemes, what, scale)
        note = "On images cut from the training split; a line a scheme, the mean over its seeds."
        alt = f"Held-out loss and accuracy by epoch for {', '.join(schemes)}."
        blocks.append(picture_of(figure, title=title, alt=alt, note=note))
    if blocks:
        yield Section("Curves of fine-tuning", "curves", (), tuple(blocks))


def _draw(axes: Any, schemes: dict[str, list[tuple[Epoch, ...]]], what: str, scale: float) -> None:
    for name, histories in schemes.items():
        by_epoch: dict[int, list[float]] = defaultdict(list)
        for epoch in (epoch for history in histories for epoch in history):
            if (value := getattr(epoch, what)) is not None:
                by_epoch[epoch.epoch].append(scale * value)
        seeds = f", {len(histories)} seeds" if len(histories) > 1 else ""
        axes.plot(list(by_epoch), [np.mean(own) for own in by_epoch.values()], marker=".", label=f"{name}{seeds}")
    axes.set_xlabel("epoch")
    axes.set_ylabel("held-out loss" if scale == 1 else "held-out accuracy %")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _confusions(results: Results) -> Iterable[Section]:
    """Of the improved B-CNN with frozen networks: the matrix, and the pairs of classes most often confused."""
    blocks: list[Table | Picture] = []
    for subject in found_of(results, results.subjects, lambda own: [row(own, "sqrt + sgnsqrt")]):
        if own := results.get(row(subject, "sqrt + sgnsqrt")):
            blocks += _confusion(results, subject, own)
    if blocks:
        yield Section("Confusions", "confusions", ("Improved B-CNN, frozen network.",), tuple(blocks))


def _confusion(results: Results, subject: Subject, own: FrozenResult) -> list[Table | Picture]:
    classes = results.datasets[subject.dataset, subject.images].classes
    k = len(classes)
    counts = accuracy_of(own.predicted, own.truth, k).confusion.numpy()
    title = title_of(results, subject, subject.size)
    alt = f"Confusion matrix of {k} classes; {100 * own.accuracy:.1f} % of the images are on its diagonal."
    note = "A row a true class, a column a predicted one; each row adds up to 1."
    picture = picture_of(confusion_figure(counts, classes), title=title, alt=alt, note=note)
    wrong = counts - np.diag(counts.diagonal())
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSED]
    pairs = [(int(i) // k, int(i) % k) for i in order if wrong.flat[i] > 0]
    rows = tuple((shown(classes[i]), shown(classes[j]), f"{wrong[i, j]}", f"{counts[i].sum()}") for i, j in pairs)
    table = Table(f"Most often confused: {title}", ("is", "taken for", "times", "of"), rows, num_labels=2)
    return [picture, table] if rows else [picture]


def costs(results: Results) -> Table:
    """What all of it took: describing images, then the measurements per artifact and network."""
    described = {
        job.source.name_with(): own.result.time_s["describe"]  # of all poolings in one pass
        for job, own in results.measurements.items()
        if isinstance(job, Frozen) and isinstance(own.result, FrozenResult)
    }
    rows = [("describing images", name, "", f"{seconds / 60:.1f}", "") for name, seconds in described.items()]
    for name, experiment in EXPERIMENTS.items():
        for network in dict.fromkeys(subject.network for subject in results.subjects):
            own = [subject for subject in results.subjects if subject.network == network]
            jobs = dict.fromkeys(job for subject in own for job in experiment.jobs(subject))
            done = [results.measurements[job] for job in jobs if job in results]
            minutes = sum(one.time_s for one in done if not isinstance(one.job, Tuned)) / 60
            training = sum(one.result.train_s for one in done if isinstance(one.result, TunedResult)) / 60
            if done:
                rows.append((name, network, f"{len(done)} of {len(jobs)}", f"{minutes:.1f}", f"{training:.1f}"))
    return Table(
        "Minutes", ("what", "of", "measurements", "minutes", "of training"), tuple(rows), num_labels=2,
        note="What several artifacts need counts in each, and is done once.",
    )  # fmt: skip


def _times(results: Results) -> Section:
    rows = []
    for own in results.measurements.values():
        seconds = own.result.train_s if isinstance(own.result, TunedResult) else own.time_s
        rows.append((own.job.name, f"{seconds:.0f}", own.date[:10]))
    what = "normalizing, classifier and scores, descriptors described before"
    note = f"Of a frozen network: {what}; of a tuned one: training."
    table = Table("Seconds a measurement", ("measurement", "s", "date"), tuple(rows), note=note)
    return Section("Times", "times", (), (costs(results), table))


def _about(results: Results) -> Section:
    """The versions, and every job as it is stored."""
    groups: dict[str, list[str]] = defaultdict(list)
    for own in results.measurements.values():
        versions = {**own.versions, "commit": own.commit}
        groups[json.dumps(versions, indent=1)].append(json.dumps(job_to_plain(own.job)))
    title = "measurements: versions and configurations"
    blocks = tuple(Details(f"{len(jobs)} {title}", "\n".join([own, *jobs])) for own, jobs in groups.items())
    return Section("Configurations and versions", "configurations", (), blocks)


def _run(folder: Path, number: int) -> Section:
    """A run folder of `bcnn train`: accuracy, curves, confusion and configuration."""
    run = read(folder / METRICS)
    blocks: list[Table | Picture | Details] = [_numbers(run)]
    if tuned := run.finetune:
        figure = curves_figure(tuned.history, tuned.best_epoch, selected_on=tuned.selected_on)
        blocks.append(picture_of(figure, title="Training", alt="Loss and accuracy by epoch, the chosen epoch marked."))
    classes = tuple(run.test.per_class) if run.test else ()
    truth, predicted = answers(folder, classes)
    if truth:
        figure = confusion_figure(accuracy_of(predicted, truth, len(classes)).confusion.numpy(), classes)
        note, alt = "A row a true class; each row adds up to 1.", f"Confusion matrix of {len(classes)} classes."
        blocks.append(picture_of(figure, title="Confusion", note=note, alt=alt))
    config = folder / "config.yaml"
    text = read_text(config) if config.exists() else json.dumps(run.config)
    blocks.append(Details("Configuration and versions", f"{text}\n{json.dumps(run.versions, indent=1)}"))
    title = f"{run.dataset}: {run.preset}, {run.backbone} at {run.image_size} px"
    return Section(title, f"run{number}", (f"Run folder: {folder.name}.",), tuple(blocks))


def _numbers(run: RunMetrics) -> Table:
    rows = [("training images", f"{run.num_train}"), ("classes", f"{run.num_classes}")]
    if test := run.test:
        rows += [
            ("test images", f"{test.num_test}"),
            ("accuracy", f"{percent(test.accuracy)} %"),
            ("95 % interval (Wilson)", f"{interval(*test.interval95)} %"),
            ("top-5 accuracy", "none" if test.top5_accuracy is None else f"{percent(test.top5_accuracy)} %"),
            ("mean over classes", f"{percent(test.mean_class_accuracy)} %"),
        ]
    if tuned := run.finetune:
        before = tuned.before.accuracy
        rows.append(("before fine-tuning", "none" if before is None else f"{percent(before)} %"))
        rows.append((f"epoch, chosen on {tuned.selected_on}", f"{tuned.best_epoch} of {tuned.epochs}"))
        rows.append(("steps skipped, not finite", f"{tuned.num_skipped}"))
    rows += [(f"time: {name}", f"{value:.1f} s") for name, value in run.time_s.items()]
    return Table("Numbers", ("", ""), tuple(rows))
