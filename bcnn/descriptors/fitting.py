"""Between the network built and the images described: parts that need data see training images, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from ..data.contract import Sample
from ..files import DamagedFileError, read_tensors, write_tensors
from ..models.bcnn import BCNN
from ..models.engines import using
from ..models.views import autocast, to_batch
from ..models.weights.cache import digest_of
from ..parts.fitting import inputs_of, parts_to_fit
from ..progress import Progress, silent
from .extract import ExtractOptions, batches, decoded
from .folder import FITTED

STAGE = "fitting parts, images"


def fit_parts(
    model: BCNN,
    samples: Sequence[Sample],
    options: ExtractOptions | None = None,
    *,
    progress: Progress = silent,
) -> BCNN:
    """Fit every part that needs it, in the order in which images go through them, and return the same network.

    Args:
        model: a network; if none of its parts has to be fitted, nothing happens.
        samples: training images, without those that are held out; images that cannot be read are left out.
        options: how images are decoded, and on which device the network works.
        progress: is told how many images a part has seen.
    """
    options = options or ExtractOptions()
    todo = parts_to_fit(model)
    if todo and not samples:
        raise ValueError(f"fit_parts: expected training images for {todo[0][0]}, got none.")
    training = model.training
    model.to(options.device).eval()
    for _, part in todo:
        part.fit(lambda part=part: _inputs(model, part, samples, options, progress))  # type: ignore[misc]
    return model.train(training)


def _inputs(
    model: BCNN, part: nn.Module, samples: Sequence[Sample], options: ExtractOptions, progress: Progress
) -> Iterator[tuple[Any, ...]]:
    """What the part is given, batch after batch; images not mirrored, with their boxes if it wants them."""
    done = 0
    boxed = getattr(part, "wants_boxes", False)
    if boxed:
        samples = [replace(sample, cut=False) for sample in samples if sample.box is not None]
    for some in batches(zip(samples, decoded(samples, model.preprocessing, options), strict=True), options.batch):
        good = [(sample, picture) for sample, picture in some if not isinstance(picture, OSError)]
        done += len(some)
        if good:
            images = to_batch([picture for _, picture in good], model.preprocessing, options.device)
            with autocast(options.precision, options.device), using(options.engine):
                found = inputs_of(part, lambda images=images: model(images))  # type: ignore[misc]
            if boxed:
                places = [model.preprocessing.place(sample.box, sample.open().size) for sample, _ in good if sample.box]
                found = (*found, torch.tensor(places, device=options.device))
            yield found  # outside, so that the part computes in full precision
        progress(STAGE, done, len(samples))


def fit_or_read(
    model: BCNN, samples: Sequence[Sample], folder: Path, options: ExtractOptions, *, progress: Progress
) -> BCNN:
    """`fit_parts`, or what was found earlier on the same images with the same network, in a file of the folder."""
    if not parts_to_fit(model):
        return model
    config, parameters = model.about()
    images = [[s.name, *s.fingerprint()[::2], s.box, s.cut] for s in samples]  # size and checksum, not the date
    told = [config, digest_of(parameters), images, options.precision]
    origin = sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    path = folder / f"{FITTED}{origin}.safetensors"
    try:
        model.load_state_dict(read_tensors(path)[0], strict=False)
        return model
    except (OSError, SafetensorError, DamagedFileError):  # then it is done again
        pass
    fitted = {name for name, _ in parts_to_fit(model)}
    fit_parts(model, samples, options, progress=progress)
    tensors = {
        name: value.detach().cpu().contiguous()
        for name, value in model.state_dict().items()
        if any(name.startswith(f"{part}.") for part in fitted)
    }
    write_tensors(path, tensors, {}, who="fit_parts", remedy="Make room and give the command again.")
    return model


def unreadable(samples: Sequence[Sample], model: BCNN, options: ExtractOptions) -> dict[str, str]:
    """Names of images that cannot be read, and why."""
    pictures = decoded(samples, model.preprocessing, options)
    pairs = zip(samples, pictures, strict=True)
    return {sample.name: str(picture) for sample, picture in pairs if isinstance(picture, OSError)}
