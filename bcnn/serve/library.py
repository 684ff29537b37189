"""What a run knows besides its network: classes, their photographs, and what was said of the test images.

Photographs are asked for by their number in the dataset; no name or path of a request ever opens a file.
"""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..data.contract import TRAIN, Sample, uncell
from ..files import MOST_TEXT, check_regular
from ..metrics import METRICS, RunMetrics, read
from ..models.files import read_notes
from ..runs.neighbours import Neighbours
from ..runs.predict import Recognizer, model_of

NUM_EXAMPLES = 3
SIDE = 320  # of a small photograph
KEPT = 512  # small photographs that are kept in memory, about 20 kB each


@dataclass(frozen=True)
class Said:
    """What the network said of a test image when it was trained."""

    name: str
    truth: int
    guess: int
    probability: float


class Library:
    """The dataset and the results of a run, as far as they are there.

    Args:
        run: the run folder or the model's file.
        recognizer: its network.
        neighbours: its training photographs.
    """

    def __init__(self, run: Path, recognizer: Recognizer, neighbours: Neighbours):
        self.path = model_of(run)
        self.classes, self.recognizer, self.neighbours = recognizer.classes, recognizer, neighbours
        dataset = neighbours.dataset
        self.samples: tuple[Sample, ...] = dataset.samples if dataset else ()
        self.number = {sample.name: i for i, sample in enumerate(self.samples)}
        self.metrics = _metrics(self.path.parent)
        self.said = _said(self.path.parent / "predictions.csv", self.classes) if self.metrics else []
        self.photograph = lru_cache(maxsize=KEPT)(self._photograph)

    def about(self) -> dict[str, Any]:
        """What the page says of the run."""
        notes, test = read_notes(self.path), self.metrics.test if self.metrics else None
        return {
            "name": self.path.parent.name if self.metrics else self.path.name,
            "dataset": notes.get("dataset", ""),
            "network": self.recognizer.model.config.backbone,
            "image_size": self.recognizer.model.preprocessing.size,
            "num_classes": len(self.classes),
            "calibrated": bool(notes.get("calibrated", False)),
            "accuracy": test.accuracy if test else notes.get("accuracy"),
            "interval95": list(test.interval95) if test else None,
            "num_test": test.num_test if test else 0,
            "why_no_photographs": self.neighbours.why_no_photographs,
            "why_no_similar": self.neighbours.why_no_shares,
        }

    def all_classes(self) -> list[dict[str, Any]]:
        """Every class with its accuracy, numbers of images, and the numbers of some of its photographs."""
        per_class = self.metrics.test.per_class if self.metrics and self.metrics.test else {}
        examples, counts = defaultdict(list), Counter()  # type: ignore[var-annotated]
        for i, sample in enumerate(self.samples):
            if sample.split == TRAIN:
                counts[sample.label] += 1
                if len(examples[sample.label]) < NUM_EXAMPLES:
                    examples[sample.label].append(i)
        found = []
        for label, name in enumerate(self.classes):
            own = per_class.get(name)
            found.append({
                "index": label, "name": name, "accuracy": own.accuracy if own else None,
                "num_test": own.num_test if own else 0, "num_train": counts[label], "examples": examples[label],
            })  # fmt: skip
        return found

    def confusion(self) -> list[tuple[int, int, int]]:
        """True class, predicted class, and how often; only what happened."""
        counts = Counter((one.truth, one.guess) for one in self.said)
        return sorted((truth, guess, count) for (truth, guess), count in counts.items())

    def cell(self, truth: int, guess: int) -> list[dict[str, Any]]:
        """The test images of one class that were taken for another, the surest first."""
        own = sorted((s for s in self.said if (s.truth, s.guess) == (truth, guess)), key=lambda s: -s.probability)
        return [{"name": s.name, "photo": self.number.get(s.name), "probability": s.probability} for s in own]

    def _photograph(self, index: int) -> bytes:
        """A small copy as JPEG; raises OSError if it is gone, IndexError if there is no such number."""
        if not 0 <= index < len(self.samples):
            raise IndexError(index)
        image = self.samples[index].open()
        image.thumbnail((SIDE, SIDE))
        return as_jpeg(image)


def as_jpeg(image: Any) -> bytes:
    """An image as the bytes of a JPEG file."""
    file = io.BytesIO()
    image.save(file, format="JPEG", quality=85)
    return file.getvalue()


def _metrics(folder: Path) -> RunMetrics | None:
    """The measurements of a run; a model's file alone has none."""
    return read(folder / METRICS) if (folder / METRICS).exists() else None


def _said(path: Path, classes: tuple[str, ...]) -> list[Said]:
    """The predictions of the run on its test images; none where their file is gone."""
    number = {name: i for i, name in enumerate(classes)}
    if not path.exists():
        return []
    check_regular(path, MOST_TEXT)
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get("truth")]
    return [
        Said(
            uncell(row["image"]),
            number[uncell(row["truth"])],
            number[uncell(row["class1"])],
            float(row["probability1"]),
        )
        for row in rows
        if {uncell(row["truth"]), uncell(row["class1"])} <= set(number)
    ]
