"""What experiments are done on, and what every measurement says besides its numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .. import machine
from ..classify.rescale import RESCALES
from ..errors import unknown_name
from ..finetune.recipes import RECIPES
from .plain import later

R_co = TypeVar("R_co", covariant=True)
RIDGES = ("ours", "paper", "absolute")


@dataclass(frozen=True)
class Subject:
    """What experiments are done on: a dataset, a network, and how far to go."""

    dataset: str  # cub, cars, aircraft as in the paper, or any other name
    images: str  # digest of its images, names and content: results of others are others
    network: str
    weights: str = "default"  # what they are called
    parameters: str = ""  # digest of what they are
    size: int = 448  # of the images, for frozen networks
    tuned_size: int = 448
    epochs: int = 50
    seeds: tuple[int, ...] = (0,)
    dim: int = 512  # of matrices that are made up
    device: str = "cpu"  # for times
    threads: int = 1
    rescale: str = "none"  # of the SVMs, a name of `classify.rescale.RESCALES`
    ridge: str = "ours"  # of `RIDGES`; the others have the exact signed square root of the paper, too
    recipe: str = "ours"  # of fine-tuning, a name of `finetune.recipes.RECIPES`
    freeze_until: str | None = None  # layers that are not fine-tuned
    flips: bool = later(True)  # whether mirror images count, in training and in tests, as in the paper
    boxes: bool = later(False)  # whether training images have boxes around what they show
    systems: tuple[str, ...] = later(())  # rows of Table 4 that are wanted; none named: all

    def __post_init__(self) -> None:
        for name, choices in (("rescale", RESCALES), ("ridge", RIDGES), ("recipe", RECIPES)):
            if getattr(self, name) not in choices:
                raise unknown_name("reproduce", name, getattr(self, name), choices)


@dataclass(frozen=True)
class DatasetInfo:
    """What tables say about a dataset; it contains no paths."""

    classes: tuple[str, ...]
    num_classes: int
    num_images: int
    num_train: int
    num_test: int
    dataset: str
    images: str  # digest, as in `Subject`


@dataclass(frozen=True)
class Outcome(Generic[R_co]):
    """What a job measured, and by which versions; unless told otherwise, by those that run now."""

    result: R_co
    versions: dict[str, str] = field(default_factory=machine.facts)
    commit: str | None = field(default_factory=machine.commit)


@dataclass(frozen=True)
class Failed:
    """The result of a job that was tried and has no numbers, such as a training that diverged."""

    failed: str  # the reason


@dataclass(frozen=True)
class Tested:
    """Accuracy on the test images, and what was predicted."""

    accuracy: float
    top5_accuracy: float | None
    mean_class_accuracy: float
    num_test: int
    num_train: int
    num_broken: int  # images that could not be read
    truth: tuple[int, ...]  # true classes of the test images
    predicted: tuple[int, ...]
    descriptor_length: int
