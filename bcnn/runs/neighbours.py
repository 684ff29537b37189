r"""The training photographs behind a score: the dual of the classifier says how much each of them adds to it.

.. math:: s_c(z) = \sum_i \beta_{ic} \langle x_i, z \rangle + b_c

The weights of a linear classifier are a combination of the training descriptors x_i, so a score is a sum over training
photographs, exactly; for an SVM, most of the beta are zero. `bcnn train` keeps beta in dual.safetensors; the
descriptors of the training photographs are where the run has left them. Of an image and its mirror image the shares are
added for a training photograph, and averaged for the one that is explained, as its scores are.

Paper: Sec. 3.2, one-vs-rest linear SVMs.

Legend: x_i descriptors of training views; z that of the image; beta (n, k) multipliers with their signs; b bias.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from ..data.contract import TRAIN, Dataset, Sample
from ..data.spec import load_dataset
from ..descriptors.extract import extract
from ..descriptors.folder import DescriptorRows, Descriptors
from ..files import read_tensors, write_tensors
from ..models.bcnn import BCNN
from ..models.files import read_notes
from ..models.weights.cache import digest_of
from ..progress import Progress, silent
from ..report.explanation import Speaker
from .predict import Recognizer, model_of

DUAL = "dual.safetensors"
AGAIN = "Give the same bcnn train command again to have them."
DESCRIBE = "bcnn explain --describe makes them again."


def write_dual(folder: Path, descriptors: Descriptors, beta: Tensor) -> None:
    """Keep the dual of a classifier in a run folder, and where the descriptors are that it goes with."""
    about = {
        "descriptors": os.path.relpath(descriptors.folder, folder),
        "digest": descriptors.config.digest,
        "listing": descriptors.config.listing,
    }
    write_tensors(folder / DUAL, {"beta": beta.float()}, about, who="train", remedy="Make room.")


@dataclass(frozen=True)
class Products:
    """Inner products of images with training photographs."""

    views: Tensor  # (n, q): of training views with the mean descriptors of the images
    lengths: Tensor  # (images,): of the mean descriptors of training photographs
    own_lengths: Tensor  # (q,): of those of the images
    num_views: int

    def cosines(self) -> Tensor:
        """How similar images and training photographs are, from -1 to 1, shape (q, images)."""
        means = self.views.unflatten(0, (-1, self.num_views)).mean(1)  # (images, q)
        cosines: Tensor = (means / (self.lengths[:, None] * self.own_lengths).clamp_min(1e-30)).mT
        return cosines


class Neighbours:
    """The training photographs of a run, as far as they are still there.

    Args:
        run: the run folder.
        recognizer: its network.
        spec: where the dataset is now; None: where it was at training.
    """

    def __init__(self, run: Path, recognizer: Recognizer, spec: str | None = None):
        self.folder = model_of(run).parent
        self.classes = recognizer.classes
        self.dataset, self.why_no_photographs = _dataset(model_of(run), recognizer.classes, spec)
        self._beta: Tensor | None = None
        self._descriptors: Descriptors | None = None
        self.why_no_shares = self._open(recognizer)

    def _open(self, recognizer: Recognizer) -> str:
        """Open dual and descriptors; returns what is missing, in words."""
        if not isinstance(recognizer.model, BCNN):
            return "The shares of training photographs are known for one network, not for an ensemble."
        if not getattr(recognizer.model.scorer, "is_linear", False):
            return (
                "The shares of training photographs are known for a linear classifier, not for the scorer of this run."
            )
        try:
            tensors, about = read_tensors(self.folder / DUAL)
        except (OSError, SafetensorError):
            return f"This run has no {DUAL}, which says what training photographs speak for a class. {AGAIN}"
        try:
            descriptors = Descriptors(self.folder / about["descriptors"])
            missing = descriptors.missing
        except (OSError, ValueError, KeyError):
            return f"The descriptors of the training photographs are gone from {about.get('descriptors')}. {DESCRIBE}"
        _, parameters = recognizer.model.about()
        if missing or {about["digest"], digest_of(parameters)} != {descriptors.config.digest}:
            return f"The descriptors in {about['descriptors']} are not those of this run, or not complete. {AGAIN}"
        self._beta, self._descriptors = tensors["beta"].double(), descriptors
        if len(self._beta) != len(self.rows.labels):
            self._beta = self._descriptors = None
            return f"The descriptors in {about['descriptors']} are of other training photographs. {AGAIN}"
        return ""

    @cached_property
    def rows(self) -> DescriptorRows:
        """The descriptors of the training views."""
        assert self._descriptors is not None
        return self._descriptors.matrix(TRAIN)

    @cached_property
    def samples(self) -> list[Sample | None]:
        """The training photographs in the order of the descriptors; None for those that are gone."""
        assert self._descriptors is not None
        known = {sample.name: sample for sample in self.dataset.of(TRAIN)} if self.dataset else {}
        return [known.get(self._descriptors.entries[row].name) for row in self.rows.rows]

    def products(self, descriptors: Tensor) -> Products:
        """What images and training photographs have in common, in one pass over the descriptors of the latter.

        Args:
            descriptors: of images, shape (q, views, d).
        """
        mean = descriptors.double().mean(1)  # (q, d)
        own, lengths = [], []
        for rows in self.rows.parts():
            own.append((rows @ mean.float().mT).double())
            lengths.append(rows.unflatten(0, (-1, self.rows.num_views)).mean(1).norm(dim=1).double())
        return Products(torch.cat(own), torch.cat(lengths), mean.norm(dim=1), self.rows.num_views)

    def shares(self, products: Products, labels: Sequence[int]) -> Tensor:
        """The share of every training photograph in the score of a class, shape (q, images)."""
        assert self._beta is not None
        each = self._beta[:, torch.tensor(list(labels))] * products.views  # (n, q)
        shares: Tensor = each.unflatten(0, (-1, products.num_views)).sum(1).mT
        return shares

    def speakers(self, shares: Tensor, most: int) -> tuple[tuple[Speaker, ...], tuple[Speaker, ...]]:
        """The photographs with the largest shares, and those with the most negative ones.

        Args:
            shares: of one image, shape (images,).
            most: how many of each.
        """
        order = shares.argsort(descending=True).tolist()
        best = [i for i in order[:most] if shares[i] > 0]
        worst = [i for i in reversed(order[-most:]) if shares[i] < 0]
        return tuple(self._speaker(i, shares) for i in best), tuple(self._speaker(i, shares) for i in worst)

    def entry(self, i: int) -> tuple[str, str]:
        """The name and the class of a training photograph."""
        assert self._descriptors is not None
        entry = self._descriptors.entries[self.rows.rows[i]]
        return entry.name, self.classes[entry.label]

    def _speaker(self, i: int, shares: Tensor) -> Speaker:
        return Speaker(*self.entry(i), float(shares[i]), self.samples[i])


def describe_again(run: Path, recognizer: Recognizer, spec: str | None = None, progress: Progress = silent) -> None:
    """Describe the training photographs again where the dual of a run expects them; what is there is not done again.

    Fine-tuned runs need it, for they keep no descriptors; others whose descriptors were deleted.
    """
    folder, model = model_of(run).parent, recognizer.model
    dataset, why = _dataset(model_of(run), recognizer.classes, spec)
    if dataset is None or not (folder / DUAL).exists() or not isinstance(model, BCNN):
        raise ValueError(
            f"explain: expected a run with {DUAL} and its dataset for --describe, got none. {why}".rstrip()
        )
    _, about = read_tensors(folder / DUAL)
    training = replace(dataset, samples=dataset.of(TRAIN))
    extract(training, {folder / about["descriptors"]: model}, recognizer.options, progress=progress)


def no_neighbours(neighbours: Neighbours | None) -> str:
    """Why training photographs are not shown."""
    return "" if neighbours is None else neighbours.why_no_shares


def _dataset(model: Path, classes: tuple[str, ...], spec: str | None) -> tuple[Dataset | None, str]:
    """The dataset of a run, if it is still there, or what is wrong with it."""
    config: Any = read_notes(model).get("config", {})
    wanted = spec or (config.get("spec") if isinstance(config, dict) else None)
    if not wanted or not isinstance(wanted, str):
        return None, "The model's file does not say which dataset it was trained on; name it by --data."
    try:
        dataset = load_dataset(wanted)
    except (OSError, ValueError) as error:
        if spec:
            raise
        return None, f"The dataset of this run is not where it was: {str(error).rstrip('.')}. Name it by --data."
    if dataset.classes != classes:
        if spec:
            raise ValueError(f"--data: expected the dataset of the run, with its {len(classes)} classes, got others.")
        return None, f"The dataset at {wanted} has other classes now. Name the dataset of this run by --data."
    return dataset, ""
