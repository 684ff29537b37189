"""A trained network as one file that runs without bcnn, and how far that file agrees with the run on photographs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

from .. import __version__
from ..data.contract import TEST, Sample, shown
from ..data.spec import load_dataset
from ..descriptors.extract import batches, decoded
from ..errors import unknown_name
from ..metrics import Notes, read_as
from ..models.deployed import FORMS, Deployed, missing_in_products, record
from ..models.exports import EXPORTS, Runner
from ..models.files import read_notes
from ..progress import Progress, silent, within
from .place import check_replaceable
from .predict import Recognizer, find_images, model_of

CHOSEN_ON = 8  # images on which the form of the matrix functions is chosen
WANTED = 2e-5  # the largest difference of a probability with which a form is good enough
NUM_IMAGES = 200
INPUT = (
    "float32 in [0, 1], RGB, shape (batch, 3, height, width): the photograph resized and cropped as said here, bytes "
    "divided by 255; the mean and the deviation are taken care of inside"
)


@dataclass(frozen=True)
class Agreement:
    """How an exported file and the run agree on images."""

    num_images: int
    num_same: int  # images with the same best class
    largest: float  # the largest difference of a probability
    num_broken: int = 0  # images that could not be read


@dataclass(frozen=True)
class Exported:
    """The file, and what can be said of it."""

    path: Path
    size: int  # bytes
    any_size: bool  # whether images may have other sizes than those of the run
    functions: tuple[str, ...]  # how the matrix functions are computed
    agreement: Agreement | None  # None where there are no images to measure on
    why_not: str = ""  # there are none


def export(
    recognizer: Recognizer,
    run: Path,
    to: str,
    out: Path | None = None,
    *,
    images: str | None = None,
    num_images: int = NUM_IMAGES,
    any_size: bool = True,
    progress: Progress = silent,
) -> Exported:
    """Write a run as one file from pixels to probabilities, and measure it.

    Args:
        recognizer: from `open_run`, on the CPU.
        run: the run folder, or the model's file.
        to: a name of `EXPORTS`.
        out: the file; None: beside the model.
        images: a folder of photographs or a dataset to measure on; None: the dataset of the run.
        num_images: how many of them, spread over all.
        any_size: whether to leave the size of the images open where the network allows that.
        progress: hears how many images are done.
    """
    if to not in EXPORTS:
        raise unknown_name("export", "format", to, EXPORTS)
    kind = EXPORTS[to]
    kind.require()
    place = _place(out or model_of(run).with_suffix(kind.suffix), kind.suffix)
    check_replaceable(place, "export", kind.is_ours)
    notes = read_as(Notes, read_notes(model_of(run)))
    samples, why_not = _samples(images, notes, num_images)
    network = _deployed(recognizer, kind.decomposes, samples[:: max(1, len(samples) // CHOSEN_ON)][:CHOSEN_ON])
    size = recognizer.model.preprocessing.size
    progress("recording the network", 0, 1)
    program, is_open = record(network, size, dynamic=any_size)
    if not kind.decomposes and (left := missing_in_products(program)):
        raise ValueError(
            f"export: expected parts that {to} can express by products and sums, got {left}, which decomposes a "
            "matrix; use --to torch."
        )
    functions = tuple(map(str, network.functions))
    kind.write(program, place, _about(recognizer, notes, functions, any_size=is_open))
    progress("recording the network", 1, 1)
    agreement = None
    if samples:
        agreement = _measured(recognizer, kind.open(place), samples, within(progress, f"{to}: "))
    return Exported(place, place.stat().st_size, is_open, functions, agreement, why_not)


def _place(path: Path, suffix: str) -> Path:
    if path.suffix != suffix or path.is_dir():
        raise ValueError(f"export: expected --out to be a file whose name ends in {suffix}, got {shown(str(path))}.")
    return path


def _samples(images: str | None, notes: Notes, number: int) -> tuple[Sequence[Sample], str]:
    """Photographs spread over all there are, or the reason why there are none."""
    if images is not None:
        return _spread(_named(images), number), ""
    try:
        return _spread(_of_dataset(str(notes.config.get("spec", ""))), number), ""
    except (OSError, ValueError) as error:
        return [], f"the dataset of the run cannot be read here ({str(error).rstrip('.')})"


def _spread(found: Sequence[Sample], number: int) -> list[Sample]:
    places = numpy.linspace(0, len(found) - 1, min(number, len(found))).round().astype(int)
    return [found[i] for i in dict.fromkeys(places.tolist())]


def _named(text: str) -> Sequence[Sample]:
    """The images of a folder, whatever is in it, for labels are not needed; else of a dataset."""
    folder = Path(text)
    if text and folder.exists():
        return [Sample(str(path), 0, TEST, path) for path in find_images([folder])]
    return _of_dataset(text)


def _of_dataset(spec: str) -> Sequence[Sample]:
    dataset = load_dataset(spec)
    return dataset.of(TEST) or dataset.samples


def _deployed(recognizer: Recognizer, decomposes: bool, samples: Sequence[Sample]) -> Deployed:
    """The network as it will be recorded: of the product-only forms the cheapest that is exact enough on images."""

    def made(form: dict[str, Any] | None) -> Deployed:
        how = {"temperature": recognizer.temperature, "flips": recognizer.options.flips}
        return Deployed(recognizer.model, **how, form=form)  # type: ignore[arg-type]

    if decomposes:
        return made(None)
    first = made(FORMS[0])
    if not any(function.can_be_refined for function in first.functions):
        return first
    if not samples:
        return made(FORMS[-1])
    best, least = first, float("inf")
    for form in FORMS:
        network = first if form is FORMS[0] else made(form)
        difference = _measured(recognizer, _as_runner(network), samples).largest
        if difference < least:
            best, least = network, difference
        if least <= WANTED:
            break
    return best


def _as_runner(network: Deployed) -> Runner:
    def run(images: numpy.ndarray) -> numpy.ndarray:
        with torch.inference_mode():
            result: numpy.ndarray = network(torch.from_numpy(images)).numpy()
        return result

    return run


def _measured(recognizer: Recognizer, run: Runner, samples: Sequence[Sample], progress: Progress = silent) -> Agreement:
    """The file beside the run, on the same pixels."""
    same, largest, done, broken = 0, 0.0, 0, 0
    for pictures, missing in _pictures(recognizer, samples):
        broken += missing
        if pictures:
            exact = recognizer.logits(pictures).double().softmax(-1).numpy()
            ours = run(as_input(pictures))
            same += int((exact.argmax(1) == ours.argmax(1)).sum())
            largest = max(largest, float(abs(exact - ours).max()))
        done += len(pictures)
        progress("comparing with the run", done + broken, len(samples))
    return Agreement(done, same, largest, broken)


def _pictures(recognizer: Recognizer, samples: Sequence[Sample]) -> Iterator[tuple[list[numpy.ndarray], int]]:
    """Squares of pixels, some at a time, and how many images could not be read."""
    squares = decoded(samples, recognizer.model.preprocessing, recognizer.options)
    for some in batches(squares, recognizer.options.batch):
        good = [picture for picture in some if not isinstance(picture, OSError)]
        yield good, len(some) - len(good)


def as_input(pictures: Sequence[numpy.ndarray]) -> numpy.ndarray:
    """Squares of bytes (H, W, 3) as an exported network takes them, shape (B, 3, H, W)."""
    pixels = numpy.stack(pictures).astype(numpy.float32) / numpy.float32(255)
    return numpy.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


def _about(recognizer: Recognizer, notes: Notes, functions: Sequence[str], *, any_size: bool) -> dict[str, str]:
    """What goes into the file besides the network, as JSON."""
    own = recognizer.model.preprocessing
    geometry = {name: value for name, value in asdict(own).items() if name not in ("pixel_max", "mean", "std")}
    run = {
        "written_by": f"bcnn {__version__}",
        "backbone": recognizer.model.config.backbone,
        "dataset": notes.dataset,
        "accuracy": notes.accuracy,
        "flips_averaged": recognizer.options.flips,
        "temperature": recognizer.temperature,
        "matrix_functions": list(functions),
    }
    return {
        "classes": json.dumps(list(recognizer.classes)),
        "preparation": json.dumps({"input": INPUT, **geometry, "any_size": any_size}),
        "run": json.dumps(run),
    }
