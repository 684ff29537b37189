"""A trained network on other images, on any machine: its file is all it takes.

Paper: Sec. 3.2, "evaluated on an image and its flipped copy and their predictions are averaged".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from .. import machine
from ..data.contract import TEST, TRAIN, Dataset, Sample, shown
from ..data.folder import images_in
from ..data.spec import load_dataset
from ..descriptors.bfloat16 import avoid_broken_amx
from ..descriptors.extract import ExtractOptions, batches, decoded, unless_strict
from ..descriptors.folder import digest_of, listed
from ..files import read_text
from ..metrics import METRICS, MODEL, EvaluationMetrics, Notes, Prediction, read_as
from ..models.files import Predictor, load, read_notes
from ..models.views import in_views
from ..progress import Progress, silent
from .place import held
from .predictions import TOP, predictions_of

STAGE = "looking at images"


@dataclass(frozen=True)
class Recognizer:
    """A network or an ensemble, the names of its classes, and how its scores become probabilities."""

    model: Predictor
    classes: tuple[str, ...]
    temperature: float
    options: ExtractOptions

    def logits(self, pictures: Sequence[numpy.ndarray]) -> Tensor:
        """Scores over temperature, averaged over the views, of squares of pixels; shape (B, classes)."""
        options = self.options
        (scores,) = in_views(
            pictures, self.model.preprocessing, lambda images: [self.model(images)],
            flips=options.flips, precision=options.precision, device=options.device, engine=options.engine,
        )  # fmt: skip
        return scores.mean(1) / self.temperature


def open_run(run: str | Path, **options: Any) -> Recognizer:
    """The network of a run folder, or of a model's file; `options` are those of `ExtractOptions`."""
    path = model_of(run)
    content = read_notes(path)
    if "classes" not in content:
        raise ValueError(
            f"{path}: expected a network with class names, as bcnn train writes it, got one without; "
            "save it with notes={'classes': [...]}."
        )
    try:
        notes = read_as(Notes, content)
        how = ExtractOptions(flips=bool(notes.flips), precision=notes.precision, **options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected the notes of bcnn train in its header, got: {error}.") from None
    if notes.precision == "bf16":
        avoid_broken_amx()
    model = load(path, device=how.device)
    if model.config.num_classes != len(notes.classes):
        raise ValueError(
            f"{path}: expected as many class names as the network has scores, {model.config.num_classes}, got "
            f"{len(notes.classes)}."
        )
    return Recognizer(model, notes.classes, notes.temperature, how)


def model_of(run: str | Path) -> Path:
    """The model's file of a run folder, or the file itself."""
    folder = Path(run)
    if not folder.is_dir():
        return folder
    if (folder / MODEL).exists():
        return folder / MODEL
    inside = sorted(str(path.parent) for path in folder.glob(f"*/{MODEL}"))
    hint = f"name one of: {', '.join(inside)}" if inside else "make one with bcnn train"
    raise FileNotFoundError(f"expected a run folder with a {MODEL}, got {folder}, which has none; {hint}.")


def find_images(paths: Iterable[str | Path]) -> list[Path]:
    """Files as they are named, folders as the images in them, in order of their names."""
    found: list[Path] = []
    for path in map(Path, paths):
        if _is_folder(path):
            inside = images_in(path)
            if not inside:
                raise ValueError(f"predict: expected images in {shown(str(path))}, got none.")
            found += inside
        else:
            found.append(path)
    return found


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # no possible name; reading it will say so
        return False


def predict(
    recognizer: Recognizer, paths: Sequence[Path], progress: Progress = silent, *, top: int = TOP
) -> Iterator[Prediction | OSError]:
    """Predictions in order, as they come; an error in the place of an image that cannot be read."""
    samples = [Sample(str(path), 0, TEST, path) for path in paths]
    for some, logits in _all_logits(recognizer, samples, progress):
        good = [sample.name for sample, picture in some if not isinstance(picture, OSError)]
        coming = iter(predictions_of(logits, good, recognizer.classes, top=top))
        for _, picture in some:
            if isinstance(picture, OSError):
                unless_strict(picture, recognizer.options)
            yield picture if isinstance(picture, OSError) else next(coming)


def _all_logits(
    recognizer: Recognizer, samples: Sequence[Sample], progress: Progress
) -> Iterator[tuple[list[tuple[Sample, numpy.ndarray | OSError]], Tensor]]:
    """Batch by batch: samples with their pictures or errors, and the logits of those that could be read."""
    pictures = decoded(samples, recognizer.model.preprocessing, recognizer.options)
    done = 0
    for some in batches(zip(samples, pictures, strict=True), recognizer.options.batch):
        good = [picture for _, picture in some if not isinstance(picture, OSError)]
        yield some, recognizer.logits(good) if good else torch.empty(0, len(recognizer.classes))
        done += len(some)
        progress(STAGE, done, len(samples))


def evaluate(
    recognizer: Recognizer, spec: str, out: Path, *, split: str = TEST, progress: Progress = silent
) -> EvaluationMetrics:
    """Accuracy on a dataset whose classes the network knows; writes metrics, predictions and pictures to `out`.

    Args:
        recognizer: from `open_run`.
        spec: the dataset.
        out: folder to write to.
        split: "test", "train" or "all".
        progress: hears how many images are done.
    """
    dataset = _with_known_classes(load_dataset(spec), recognizer.classes)
    with held(out, "evaluate"):
        return _evaluate(recognizer, spec, dataset, out, split, progress)


def _evaluate(
    recognizer: Recognizer, spec: str, dataset: Dataset, out: Path, split: str, progress: Progress
) -> EvaluationMetrics:
    from ..classify.accuracy import evaluate_scores  # they bring SciPy along, which predictions do without
    from .finish import measured, write_results

    _check_place(out, dataset, split)
    samples = dataset.samples if split == "all" else dataset.of(split)
    if not samples:
        raise ValueError(f"evaluate: expected images in the {split} split of {spec}, got none; try --split {TRAIN}.")
    logits, kept, broken = [], [], {}
    for some, part in _all_logits(recognizer, samples, progress):
        logits.append(part)
        kept += [sample for sample, picture in some if not isinstance(picture, OSError)]
        for sample, picture in some:
            if isinstance(picture, OSError):
                broken[sample.name] = unless_strict(picture, recognizer.options)
    if not kept:
        why = shown(next(iter(broken.values()))).rstrip(".")
        raise ValueError(
            f"evaluate: expected images that can be read in {spec}, got none; the first: {why}. See: bcnn datasets "
            "check."
        )
    labels = torch.tensor([sample.label for sample in kept])
    evaluation = evaluate_scores(torch.cat(logits), labels, len(recognizer.classes))
    predictions = predictions_of(torch.cat(logits), [s.name for s in kept], recognizer.classes, labels)
    metrics = EvaluationMetrics(
        dataset=dataset.name,
        split=split,
        listing=digest_of(listed(dataset), dataset.classes),
        broken=broken,
        versions=machine.facts(),
        test=measured(evaluation, recognizer.classes),
    )
    write_results(out, metrics, predictions, evaluation, dataset, recognizer)
    return metrics


def _check_place(out: Path, dataset: Dataset, split: str) -> None:
    """Leave another dataset's results alone."""
    path = out / METRICS
    if path.exists():
        stored = json.loads(read_text(path))
        if (stored.get("listing"), stored.get("split")) != (digest_of(listed(dataset), dataset.classes), split):
            raise ValueError(
                f"evaluate: expected {out} to be new or of the same images, got others; name another --out."
            )


def _with_known_classes(dataset: Dataset, classes: Sequence[str]) -> Dataset:
    """The dataset with the network's numbering of classes."""
    number = {name: i for i, name in enumerate(classes)}
    unknown = [name for name in dataset.classes if name not in number]
    if unknown:
        raise ValueError(
            f"evaluate: expected classes that the network knows, got {len(unknown)} others, such as "
            f"{shown(unknown[0])!r}; it knows {shown(classes[0])!r} and {len(classes) - 1} more."
        )
    samples = tuple(replace(s, label=number[dataset.classes[s.label]]) for s in dataset.samples)
    return replace(dataset, classes=tuple(classes), samples=samples)
