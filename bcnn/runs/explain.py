"""Why a network says what it says of a photograph: the regions that decided, and the training photographs behind it.

The mathematics of the regions is in `models.explain`, that of the training photographs in `classify.shares`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import torch
from torch import Tensor

from ..data.contract import TEST, Sample
from ..descriptors.extract import batches, decoded, unless_strict
from ..files import written_whole
from ..metrics import Prediction
from ..models.bcnn import BCNN
from ..models.explain import Regions, regions
from ..models.views import in_views, to_batch
from ..progress import Progress, silent
from ..report.explanation import Explanation, Speaker, draw
from ..report.overlay import side_by_side
from .invert import find_class
from .neighbours import Neighbours, no_neighbours
from .place import held
from .predict import Recognizer
from .predictions import predictions_of

if TYPE_CHECKING:
    from PIL.Image import Image

STAGE = "explaining images"
NUM_SHOWN = 5  # training photographs for, and as many against


@dataclass(frozen=True)
class Explained:
    """A picture that was written."""

    prediction: Prediction
    name: str  # of the class that was explained
    path: Path


def split_scores(recognizer: Recognizer, pictures: Sequence[numpy.ndarray], labels: Sequence[int]) -> Regions:
    """The shares of regions in the scores of classes, averaged over an image and its mirror image; on the CPU.

    Args:
        recognizer: from `open_run`.
        pictures: squares of pixels, as `Preprocessing.fit` gives them.
        labels: the class of each whose score is split.
    """
    options, chosen = recognizer.options, torch.tensor(list(labels))
    views = []
    for flip in (False, True) if options.flips else (False,):
        seen = [numpy.ascontiguousarray(own[:, ::-1]) if flip else own for own in pictures]
        images = to_batch(seen, recognizer.model.preprocessing, options.device)
        part = regions(
            recognizer.model, images, chosen.to(images.device), precision=options.precision, engine=options.engine
        )
        shares = part.shares.flip(-1) if flip else part.shares
        views.append(replace(part, shares=shares))
    shares, scores, bias = (
        torch.stack([getattr(view, name) for view in views]).mean(0).cpu() for name in ("shares", "scores", "bias")
    )
    return Regions(shares, scores, bias, all(view.adds_up for view in views))


def explain(
    recognizer: Recognizer,
    paths: Sequence[Path],
    out: Path,
    *,
    name: str | None = None,
    neighbours: Neighbours | None = None,
    progress: Progress = silent,
) -> Iterator[Explained | OSError]:
    """Explain photographs, one picture each; an error in the place of one that cannot be read.

    Args:
        recognizer: from `open_run`.
        paths: of the photographs.
        out: the folder for the pictures: new, empty, or made by an earlier command.
        name: the class to explain; None: the one that is predicted.
        neighbours: the training photographs; None: they are not asked.
        progress: hears how many are done.
    """
    label = None if name is None else find_class(name, recognizer.classes, who="explain")
    with held(out, "explain"):
        yield from _explain(recognizer, paths, out, label, neighbours, progress)


def _explain(
    recognizer: Recognizer,
    paths: Sequence[Path],
    out: Path,
    label: int | None,
    neighbours: Neighbours | None,
    progress: Progress,
) -> Iterator[Explained | OSError]:
    samples = [Sample(str(path), 0, TEST, path) for path in paths]
    names = _names(paths)
    pictures = decoded(samples, recognizer.model.preprocessing, recognizer.options)
    done = 0
    for some in batches(zip(samples, pictures, names, strict=True), recognizer.options.batch):
        good = [(sample, picture) for sample, picture, _ in some if not isinstance(picture, OSError)]
        coming = iter(_explained(recognizer, good, label, neighbours))
        for sample, picture, file in some:
            if isinstance(picture, OSError):
                unless_strict(picture, recognizer.options)
                yield picture
                continue
            explanation = next(coming)
            with written_whole(out / file) as temporary:
                draw(explanation, sample.open(), recognizer.model.preprocessing, temporary)
            yield Explained(explanation.prediction, explanation.name, out / file)
        done += len(some)
        progress(STAGE, done, len(samples))


def _explained(
    recognizer: Recognizer,
    good: Sequence[tuple[Sample, numpy.ndarray]],
    label: int | None,
    neighbours: Neighbours | None,
) -> list[Explanation]:
    if not good:
        return []
    pictures = [picture for _, picture in good]
    said = predictions_of(recognizer.logits(pictures), [sample.name for sample, _ in good], recognizer.classes)
    labels = [recognizer.classes.index(own.top[0][0]) if label is None else label for own in said]
    split = split_scores(recognizer, pictures, labels)
    speakers_of, why = _speakers(recognizer, pictures, labels, neighbours)
    return [
        Explanation(
            prediction, recognizer.classes[label], float(score), shares.double().numpy(), *speakers, why_no_speakers=why
        )
        for prediction, label, score, shares, speakers in zip(
            said, labels, split.scores, split.shares, speakers_of, strict=True
        )
    ]


_Speakers = tuple[tuple[Speaker, ...], tuple[Speaker, ...]]


def _speakers(
    recognizer: Recognizer, pictures: Sequence[numpy.ndarray], labels: Sequence[int], neighbours: Neighbours | None
) -> tuple[list[_Speakers], str]:
    """The training photographs that spoke for and against each class, or why there are none."""
    if neighbours is None or neighbours.why_no_shares:
        return [((), ())] * len(pictures), no_neighbours(neighbours)
    found = neighbours.shares(neighbours.products(describe(recognizer, pictures)), labels)
    return [neighbours.speakers(own, NUM_SHOWN) for own in found], ""


def marks_of(
    recognizer: Recognizer, samples: Mapping[str, Sample], guesses: Sequence[Prediction]
) -> dict[str, Callable[[Image], Image]]:
    """What shows on photographs, by name, which regions decided for what they were taken for.

    There is nothing to show where a network's features have no place in the photograph (`models.explain`).

    Args:
        recognizer: the network.
        samples: the photographs by name.
        guesses: what it has said of some of them.
    """
    preprocessing = recognizer.model.preprocessing
    marks: dict[str, Callable[[Image], Image]] = {}
    pictures = decoded([samples[guess.name] for guess in guesses], preprocessing, recognizer.options)
    for some in batches(zip(guesses, pictures, strict=True), recognizer.options.batch):
        good = [(guess, picture) for guess, picture in some if not isinstance(picture, OSError)]
        labels = [recognizer.classes.index(guess.top[0][0]) for guess, _ in good]
        try:
            split = split_scores(recognizer, [picture for _, picture in good], labels) if good else None
        except ValueError:  # the photographs are shown as they are
            return {}
        for (guess, _), shares in zip(good, split.shares if split else (), strict=True):
            marks[guess.name] = partial(side_by_side, shares=shares.double().numpy(), preprocessing=preprocessing)
    return marks


def describe(recognizer: Recognizer, pictures: Sequence[numpy.ndarray]) -> Tensor:
    """Descriptors of pictures, shape (images, views, d)."""
    model, options = recognizer.model, recognizer.options
    assert isinstance(model, BCNN)
    (descriptors,) = in_views(
        pictures, model.preprocessing, lambda images: [model.describe(images)],
        flips=options.flips, precision=options.precision, device=options.device, engine=options.engine,
    )  # fmt: skip
    return descriptors


def _names(paths: Sequence[Path]) -> list[str]:
    """A file name per photograph, of which no two are the same."""
    taken: set[str] = set()
    names = []
    for path in paths:
        name, number = f"explain_{path.stem}.png", 2
        while name in taken:
            name, number = f"explain_{path.stem}_{number}.png", number + 1
        taken.add(name)
        names.append(name)
    return names
