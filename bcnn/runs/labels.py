"""Training images whose labels the cross-validated scores contradict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ..classify.suspects import held_out, suspects
from ..data.contract import TRAIN
from ..data.spec import load_dataset
from ..descriptors.folder import Descriptors
from ..descriptors.team import Team
from ..progress import Progress, silent
from ..report.labels import Contradicted, write_photographs, write_table
from .config import RunConfig
from .networks import networks
from .place import held
from .train import check_readable, extract_all, fit_all

PAGE, TABLE = "labels.html", "labels.csv"


@dataclass(frozen=True)
class CheckedLabels:
    """What was found, and where it is written."""

    found: tuple[Contradicted, ...]
    num_images: int  # that were judged
    accuracy: float  # of the held-out scores, by the labels as they are
    broken: dict[str, str]  # images that could not be read
    folder: Path


def check_labels(config: RunConfig, out: Path, progress: Progress = silent) -> CheckedLabels:
    """Describe the training images, score each by classifiers that have not seen it, and write what contradicts.

    Args:
        config: dataset, network and head; one preset.
        out: the folder for the page, the table and the descriptors; a second call goes on where the first was.
        progress: hears of every stage.
    """
    dataset = load_dataset(config.spec)
    dataset = replace(dataset, samples=dataset.of(TRAIN))
    if not dataset.samples:
        raise ValueError(f"labels: expected training images in {config.spec}, got none.")
    models = networks(config, dataset)
    team = Team()
    with held(out, "labels"):
        root = out / "descriptors"
        fit_all(models, dataset.samples, root, config.extraction, team=team, progress=progress)
        places, done = extract_all(config, dataset, models, root, team=team, progress=progress)
        check_readable(dataset.samples, done.broken, "labels: expected training")
        descriptors = Descriptors(places[config.preset[0]])
        rows = descriptors.matrix(TRAIN)
        given = held_out(
            rows, rows.labels, rows.groups, len(dataset.classes),
            kind=config.classifier, C=config.C, seed=config.seed, progress=progress,
        )  # fmt: skip
        by_name = {sample.name: sample for sample in dataset.samples}
        found = tuple(
            Contradicted(
                by_name[descriptors.entries[rows.rows[one.image]].name],
                dataset.classes[one.label], dataset.classes[one.instead], one.probability, one.own,
            )
            for one in suspects(given)
        )  # fmt: skip
        number = len(given.images)
        write_table(found, out / TABLE)
        write_photographs(found, out / PAGE, dataset=dataset.name, num_images=number, accuracy=given.accuracy)
    return CheckedLabels(found, number, given.accuracy, done.broken, out)
