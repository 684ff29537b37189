"""The network: front, branches, head, scorer; composed, never subclassed.

Paper: Figure 1. ``build_model("improved_bcnn", backbone="vgg16", num_classes=200)`` is its improved B-CNN.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

from torch import Tensor, nn

from ..data.preprocess import Preprocessing
from ..errors import unknown_name
from ..fronts import FRONTS
from ..linalg.autodiff import full_precision
from ..parts.shapes import Maps, Shape, Spd, Vector
from ..parts.text import read
from ..pooling import POOLINGS
from ..pooling.head import Head, HeadConfig, make_config
from ..pooling.triangle import full_matrix
from ..scorers import SCORERS
from .backbones import BACKBONES, make_backbone
from .backbones.contract import Backbone
from .backbones.timm import PREFIX, TimmBackbone
from .branch import Branch, BranchConfig, geometry
from .weights import WEIGHTS, store
from .weights.fetch import Report, announcer, silent

PARTS = ("front", "scorer")  # of a network, each made from a text


@dataclass(frozen=True)
class ModelConfig:
    """Everything that makes a network except the values of its parameters, as plain data."""

    branches: tuple[BranchConfig, ...]
    head: HeadConfig
    front: str | None = None  # a text of `FRONTS`
    scorer: str = "linear"  # a text of `SCORERS`
    num_classes: int | None = None  # None: no scorer, descriptors come out

    @property
    def backbone(self) -> str:
        """The names of the networks."""
        return "+".join(branch.backbone for branch in self.branches)

    @property
    def preprocessing(self) -> Preprocessing:
        """How images are prepared: as the first network wants them, the others change that for themselves."""
        return self.branches[0].preprocessing


class BCNN(nn.Module):
    """From images (B, 3, H, W) to scores (B, num_classes), or to descriptors where there are no classes.

    Use `build_model`; this class joins the parts.

    Args:
        config: what it is.
        branches: its networks.
        front: the part before them; None: made from the configuration.
        head: between them and the scorer; None: made from the configuration.
    """

    kind: ClassVar[str] = "network"

    def __init__(
        self, config: ModelConfig, branches: Sequence[Branch], front: nn.Module | None = None, head: Head | None = None
    ):
        super().__init__()
        self.config = config
        self.front = FRONTS.make(config.front) if front is None and config.front else front
        self.branches = nn.ModuleList(branches)
        self.channels = [branch.num_channels for branch in branches]
        self.head = head or Head(config.head, self.channels)
        self.scorer: nn.Module | None = None
        if config.num_classes is not None:
            self.reset_scorer(config.num_classes, config.scorer)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the classes, in the precision of the scorer; descriptors where there are no classes."""
        return self.score_maps(self.maps(images))

    def maps(self, images: Tensor) -> tuple[Tensor, ...]:
        """Feature maps of every branch, shape (B, C, H', W'); of a front's crops one after another."""
        if self.front is not None:
            crops = self.front(images)
            images = crops.flatten(0, 1) if crops.ndim == 5 else crops
        return tuple(branch(images) for branch in self.branches)

    def describe(self, images: Tensor) -> Tensor:
        """Descriptors, shape (B, `descriptor_length`)."""
        return self.describe_maps(self.maps(images))

    def describe_maps(self, maps: Sequence[Tensor]) -> Tensor:
        """Descriptors from the maps of all branches; those of an image's crops side by side."""
        descriptors: Tensor = self.head(*maps)
        return descriptors if self.num_crops == 1 else descriptors.unflatten(0, (-1, self.num_crops)).flatten(1)

    def score_maps(self, maps: Sequence[Tensor]) -> Tensor:
        """Scores from the maps of all branches; descriptors where there are no classes."""
        if getattr(self.scorer, "takes", Vector) is not Spd:
            return self.score(self.describe_maps(maps))
        with full_precision(maps[0]):
            scores: Tensor = self.scorer(self.head.pool(*maps))  # type: ignore[misc]
        return scores

    def score(self, descriptors: Tensor) -> Tensor:
        """Scores of descriptors, such as stored ones, in the precision of the scorer."""
        if self.scorer is None:
            return descriptors
        if getattr(self.scorer, "takes", Vector) is Spd:
            descriptors = full_matrix(descriptors) if self.config.head.triangle else _as_square(descriptors)
        dtype = next((p.dtype for p in self.scorer.parameters() if p.is_floating_point()), descriptors.dtype)
        with full_precision(descriptors):
            scores: Tensor = self.scorer(descriptors.to(dtype))
        return scores

    def reset_scorer(self, num_classes: int | None, scorer: str | None = None) -> BCNN:
        """Put a new scorer in the place of the one there is; None classes: none.

        Args:
            num_classes: how many scores it gives.
            scorer: a text of `SCORERS`; None: of the same kind.
        """
        self.config = replace(self.config, num_classes=num_classes, scorer=scorer or self.config.scorer)
        self.scorer = None
        if num_classes is not None:
            self.scorer = SCORERS.make(
                self.config.scorer, inputs=(self._given_to(self.config.scorer),), num_classes=num_classes
            )
        return self

    def _given_to(self, scorer: str) -> Shape:
        """The shape that a scorer is given."""
        name = SCORERS.read(scorer).name
        if getattr(SCORERS[name].make, "takes", Vector) is not Spd:
            return Vector(self.descriptor_length)
        if self.config.head.normalize or self.num_crops != 1:
            raise ValueError(
                f"build_model: expected no normalizations and no crops before the scorer {name!r}, which takes pooled "
                f"matrices as they are, got {self.config.head.normalize or self.config.front}; pass normalize=()."
            )
        return self.head.pooling.shape(*map(Maps, self.channels))

    @property
    def num_crops(self) -> int:
        """Into how many a front cuts each image."""
        return int(getattr(self.front, "num_crops", 1))

    @property
    def descriptor_length(self) -> int:
        """Numbers per image that the head gives."""
        return self.num_crops * self.head.length(*self.channels)

    @property
    def backbone(self) -> nn.Module:
        """The network of the first branch, which is the only one of most models."""
        return self.branches[0].backbone  # type: ignore[return-value]

    @property
    def preprocessing(self) -> Preprocessing:
        """How images are prepared for it."""
        return self.config.preprocessing

    def freeze_until(self, layer: str) -> BCNN:
        """Let the layers up to this one stay as they are, in every branch that has it; an error if none has."""
        errors = []
        for branch in self.branches:
            try:
                branch.backbone.freeze_until(layer)  # type: ignore[operator, union-attr]
            except ValueError as error:
                errors.append(error)
        if len(errors) == len(self.branches):
            raise errors[0]
        return self

    def set_geometry(self, preprocessing: Preprocessing) -> BCNN:
        """Cut other squares out of photographs: size and resizing; pixels stay as each network wants them."""
        for branch in self.branches:
            assert isinstance(branch, Branch)
            own = replace(branch.config.preprocessing, **geometry(preprocessing))
            branch.config = replace(branch.config, preprocessing=own)
        self.config = self.live_config()
        return self

    def about(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What makes its descriptors what they are, configuration as JSON and parameters; so the scorer is left out.

        The first branch is not named: descriptors from before there were several are those of today.
        """
        config = replace(self.live_config(), scorer="linear", num_classes=None)
        own = {name: value for name, value in self.state_dict().items() if not name.startswith("scorer.")}
        return json.loads(json.dumps(asdict(config))), {n.removeprefix("branches.0."): v for n, v in own.items()}

    def live_config(self) -> ModelConfig:
        """The configuration as the parts are now: a head may have been replaced, layers frozen."""
        branches = tuple(branch.live_config() for branch in self.branches)  # type: ignore[operator]
        written = {name: getattr(getattr(self, name), "written", getattr(self.config, name)) for name in PARTS}
        return replace(self.config, branches=branches, head=getattr(self.head, "config", self.config.head), **written)


def build_model(
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
        preset: "average", "bcnn", "improved_bcnn" or "o2p" (`PRESETS`).
        backbone: a name of `BACKBONES`, or "timm/<model>" with ``pip install bcnn[timm]``; a list of several for a
            pooling that takes as many. Each may say more for itself than the options below say for all:
            "vgg16(cut=relu4_3, proj_dim=64)".
        num_classes: outputs of the scorer; None gives descriptors.
        weights: a name of `WEIGHTS`; "default" takes the backbone's own, from the cache or the package index; None
            leaves them random. For timm's networks "default" is timm's own. The .safetensors file of another network
            with this backbone, such as a fine-tuned one, gives its weights and its preprocessing.
        cut: the layer where the backbone is cut; None for the usual place (relu5_3 of vgg16, as in the paper).
        proj_dim: reduce the channels to so many by a 1 x 1 convolution before pooling.
        freeze_until: the last layer that training leaves alone.
        size: the side of the images; None for 448, the paper's, and for timm's networks that of their training.
        front: a part before the networks, a text of `FRONTS`.
        scorer: the part that scores classes, a text of `SCORERS`.
        report: hears of a download; None says it on the error stream.
        **head: options of `bcnn.Head`, such as pooling, normalize, eps, triangle.

    Example:
        >>> import torch
        >>> model = build_model("bcnn", backbone="tiny", num_classes=3, weights=None)
        >>> model(torch.rand(2, 3, 64, 64)).shape
        torch.Size([2, 3])
    """
    config = make_config(preset, **head)
    wanted = [backbone] if isinstance(backbone, str) else backbone
    if not isinstance(wanted, Sequence) or not wanted or not all(isinstance(name, str) for name in wanted):
        raise TypeError(f"build_model: expected `backbone` to be a name such as 'vgg16', got {backbone!r}.")
    shared = {"weights": weights, "cut": cut, "proj_dim": proj_dim, "freeze_until": freeze_until}
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


def with_head(model: BCNN, head: HeadConfig) -> BCNN:
    """The same front and branches, shared, under another head, without a scorer."""
    config = replace(model.config, head=head, num_classes=None)
    return BCNN(config, _branches(model), model.front).eval()


def with_scorer(model: BCNN, num_classes: int | None, weight: Tensor | None = None, bias: Tensor | None = None) -> BCNN:
    """The same front, branches and head, shared, under a new scorer, or none.

    Args:
        model: the network.
        num_classes: of the scorer; None: there is none.
        weight: of a linear classifier that it takes over, (k, D).
        bias: likewise, (k,).
    """
    config = replace(model.config, num_classes=num_classes)
    whole = BCNN(config, _branches(model), model.front, model.head)
    if weight is not None:
        whole.scorer.start_from(weight, bias)  # type: ignore[union-attr, operator]
    return whole.eval()


def _as_square(descriptors: Tensor) -> Tensor:
    return descriptors.unflatten(-1, (math.isqrt(descriptors.shape[-1]), -1))


def _branches(model: BCNN) -> list[Branch]:
    return list(model.branches)  # type: ignore[arg-type]


# --- building ---------------------------------------------------------------------------------------------------------


def _make_branch(
    text: str, shared: dict[str, Any], size: int | None, given: Preprocessing | None, report: Report
) -> Branch:
    """A branch from its text, such as "vgg16(proj_dim=64)", and the options that all share."""
    try:
        written = read(text, "backbone", "vgg16")
    except ValueError as error:
        raise ValueError(f"build_model: {error}.") from None
    if written.arguments:
        raise ValueError(f"build_model: expected options by name, as in 'vgg16(cut=relu4_3)', got {text!r}.")
    for name in written.options:
        if name not in shared:
            raise unknown_name("build_model", f"option of {written.name}", name, shared)
    options = {**shared, **written.options}
    options["weights"] = None if options["weights"] in (None, "none") else str(options["weights"])
    _check_counts(proj_dim=options["proj_dim"])
    network, preprocessing, start = _started(written.name, options["weights"], options["cut"], size, report)
    network.freeze_until(options["freeze_until"])
    config = BranchConfig(
        backbone=written.name,
        cut=network.cut,
        proj_dim=None if options["proj_dim"] is None else int(options["proj_dim"]),
        freeze_until=options["freeze_until"],
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
