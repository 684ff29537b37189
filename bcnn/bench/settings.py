"""What each benchmark can be told: the options of its command, and the smaller sizes of --quick.

The docstring of the settings is the help of the command. Nothing heavy is imported here, so that `bcnn bench NAME
--help` does not wait for torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from ..options import Names, Option, option

S = TypeVar("S", bound="Settings")


def setting(default: Any, help: str, *, quick: Any = ..., **about: Any) -> Any:
    """An option of a benchmark; `quick` is its value with --quick, where it differs, the rest as in `Option`."""
    quick = default if quick is ... else quick
    shown = _shown(default) if quick == default else f"{_shown(default)}; with --quick {_shown(quick)}"
    about = {"at_least": 1, **about} if isinstance(default, int) else about
    declared = Option(help=help, show_default=shown, commas=isinstance(default, tuple), **about)
    return field(default=default, metadata={"option": declared, "quick": quick})


def _shown(value: Any) -> str:
    return (",".join(map(str, value)) or "all") if isinstance(value, tuple) else str(value or "none")


@dataclass(frozen=True)
class Settings:
    """The settings that all benchmarks share."""

    quick: bool = option(False, help="Small sizes: seconds rather than minutes.")


def choose(kind: type[S], **given: Any) -> S:
    """Settings for a run that takes minutes, or seconds if they are `quick`, changed by what is given."""
    for name, value in given.items():
        if value == ():
            raise ValueError(f"bench: expected at least one value for {name}, got none; leave it out for all of them.")
    small = {own.name: own.metadata["quick"] for own in fields(kind) if "quick" in own.metadata}
    return kind(**{**(small if given.get("quick") else {}), **given})


@dataclass(frozen=True)
class Matfun(Settings):
    """Time and precision of matrix functions and their gradients, as ratios to torch.linalg.eigh + autograd."""

    dims: tuple[int, ...] = setting((512,), "Matrix sizes d, separated by commas.", quick=(128,), at_least=1)
    batch: int = setting(8, "Matrices per batch.", quick=4)
    regime: tuple[str, ...] = setting((), "Spectra, separated by commas.", choices=Names("bench.regimes", "REGIMES"))
    function: tuple[str, ...] = setting((), "Functions, separated by commas.", choices=Names("bench.matfun", "SCALARS"))
    method: tuple[str, ...] = setting(
        (), "Methods whose names contain one of these words, such as bcnn; separated by commas."
    )
    device: str = setting("cpu", "cpu or cuda (untested).")
    rounds: int = setting(7, "Timed rounds; every method once per round.", quick=3)


@dataclass(frozen=True)
class Pooling(Settings):
    """What heads cost next to their network, what the thin path and bfloat16 save, and how exact they are."""

    backbone: str = setting("vgg16", "The network.", quick="tiny")
    weights: str | None = setting("default", "default (a download), or none for random ones.", quick=None, none="none")
    size: int = setting(448, "Side of the images in pixels.", quick=64)
    batch: int = setting(4, "Images per batch.", quick=2)
    rounds: int = setting(5, "Timed rounds; every case once per round.", quick=2)


@dataclass(frozen=True)
class Extract(Settings):
    """Extraction from files to disk next to the bare network on tensors, and its memory."""

    spec: str = setting("textures", "The dataset, textures if none is given; see `bcnn datasets list`.", argument=True)
    backbone: tuple[str, ...] = setting(("alexnet",), "The networks, separated by commas.", quick=("tiny",))
    weights: str | None = setting(
        "default", "default (a download), none for random ones, or a name of `bcnn weights list`.", quick=None,
        none="none",
    )  # fmt: skip
    size: int = setting(448, "Side of the images in pixels.", quick=64)
    num_images: int = setting(128, "Images per round.", quick=32, flag="--images")
    memory: tuple[int, ...] = setting(
        (64, 256, 1024), "Numbers of images whose extraction's memory is measured.", quick=(32, 128), at_least=1
    )
    batch: int = setting(4, "Images per batch.")
    rounds: int = setting(5, "Timed rounds.", quick=2)


@dataclass(frozen=True)
class Svm(Settings):
    """One-vs-rest SVMs over descriptors on disk, next to scikit-learn's LinearSVC: time, memory, agreement."""

    shapes: str = setting(
        "2000x131328x100,2000x528x25,10000x528x125,40000x528x500",
        "SAMPLESxLENGTHxCLASSES: descriptors to train with, numbers in each, classes to tell apart; several by commas, "
        "or goal for all that the documentation aims at.",
        quick="200x2000x10,400x40x10",
    )


@dataclass(frozen=True)
class Scale(Settings):
    """How training, calibration and prediction grow with images, classes and the length of descriptors."""

    images: tuple[int, ...] = setting(
        (1000, 4000, 16_000, 64_000), "Numbers of images; the first goes with the others.", quick=(400, 800), at_least=1
    )
    classes: tuple[int, ...] = setting((10, 100, 1000), "Numbers of classes, likewise.", quick=(10, 20), at_least=3)
    lengths: tuple[int, ...] = setting(
        (528, 2080, 8256, 32_896), "Numbers in a descriptor, likewise.", quick=(40, 80), at_least=1
    )


@dataclass(frozen=True)
class Step(Settings):
    """What a step of fine-tuning spends on data, network, pooling, matrix function, classifier and update."""

    backbone: str = setting("alexnet", "The network.", quick="tiny")
    size: int = setting(448, "Side of the images in pixels.", quick=64)
    batch_size: int = setting(8, "Images per step.", quick=4)
    num_classes: int = setting(200, "Classes to tell apart.", quick=10, flag="--classes")
    rounds: int = setting(5, "Timed rounds; one step with every head per round.", quick=2)
    weights: str | None = setting(
        None, "none for random ones, default (a download), or a name of `bcnn weights list`.", none="none"
    )
