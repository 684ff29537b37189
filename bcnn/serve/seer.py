"""What the network says of the images of a batch: classes, regions, and similar training photographs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from ..models.explain import check_explainable
from ..report.overlay import overlay
from ..runs.explain import describe, split_scores
from ..runs.neighbours import Neighbours
from ..runs.predict import Recognizer
from ..runs.predictions import predictions_of, to_record
from .library import Library, as_jpeg

if TYPE_CHECKING:
    from PIL.Image import Image

SHOWN = 480  # the longer side of an overlay
NUM_SIMILAR = 6


@dataclass(frozen=True)
class Question:
    """An image, decoded, and what is asked about it."""

    name: str
    square: numpy.ndarray  # what the network sees
    small: Image  # to draw on
    size: tuple[int, int]
    top: int = 5
    explain: bool = False
    similar: bool = False
    label: int | None = None  # the class to explain; None: the one that is predicted


def question_of(image: Image, name: str, recognizer: Recognizer, **asked: Any) -> Question:
    """An image made ready, which takes most of the time that is not the network's."""
    square = numpy.asarray(recognizer.model.preprocessing.fit(image))
    small = image.copy()
    small.thumbnail((SHOWN, SHOWN))
    return Question(name, square, small, image.size, **asked)


class Seer:
    """Answers questions, a batch at a time.

    Args:
        library: of the run.
    """

    def __init__(self, library: Library):
        self.library, self.recognizer = library, library.recognizer
        self.neighbours: Neighbours = library.neighbours
        self.why_no_regions = ""
        try:
            check_explainable(self.recognizer.model)
        except ValueError as error:
            self.why_no_regions = str(error)

    def __call__(self, questions: Sequence[Question]) -> list[dict[str, Any]]:
        """A record per question."""
        squares = [question.square for question in questions]
        most = max(question.top for question in questions)
        said = predictions_of(
            self.recognizer.logits(squares),
            [question.name for question in questions],
            self.recognizer.classes,
            top=most,
        )
        answers = []
        for question, prediction in zip(questions, said, strict=True):
            record = to_record(prediction)
            record["top"] = record["top"][: question.top]
            width, height = question.size
            answers.append({**record, "width": width, "height": height})
        labels = [
            self.recognizer.classes.index(own.top[0][0]) if question.label is None else question.label
            for question, own in zip(questions, said, strict=True)
        ]
        self._add_regions(questions, labels, answers)
        self._add_similar(questions, labels, answers)
        return answers

    def _add_regions(self, questions: Sequence[Question], labels: Sequence[int], answers: list[dict[str, Any]]) -> None:
        wanted = [i for i, question in enumerate(questions) if question.explain and not self.why_no_regions]
        if not wanted:
            return
        split = split_scores(self.recognizer, [questions[i].square for i in wanted], [labels[i] for i in wanted])
        for i, shares in zip(wanted, split.shares, strict=True):
            picture = overlay(questions[i].small, shares.double().numpy(), self.recognizer.model.preprocessing)
            text = base64.b64encode(as_jpeg(picture)).decode()
            answers[i]["explained"] = self.recognizer.classes[labels[i]]
            answers[i]["overlay"] = f"data:image/jpeg;base64,{text}"

    def _add_similar(self, questions: Sequence[Question], labels: Sequence[int], answers: list[dict[str, Any]]) -> None:
        wanted = [i for i, question in enumerate(questions) if question.similar and not self.neighbours.why_no_shares]
        if not wanted:
            return
        products = self.neighbours.products(describe(self.recognizer, [questions[i].square for i in wanted]))
        shares = self.neighbours.shares(products, [labels[i] for i in wanted])
        for place, (i, cosines) in enumerate(zip(wanted, products.cosines(), strict=True)):
            best = cosines.topk(min(NUM_SIMILAR, len(cosines))).indices.tolist()
            answers[i]["similar"] = [
                {**self._photograph(j), "cosine": float(cosines[j]), "share": float(shares[place, j])} for j in best
            ]

    def _photograph(self, row: int) -> dict[str, Any]:
        name, label = self.neighbours.entry(row)
        return {"name": name, "class": label, "photo": self.library.number.get(name)}
