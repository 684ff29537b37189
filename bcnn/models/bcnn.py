"""The network: front, branches, head, scorer; composed, never subclassed.

Paper: Figure 1. ``build_model("improved_bcnn", backbone="vgg16", num_classes=200)`` is its improved B-CNN.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from torch import Tensor, nn

from ..data.preprocess import Preprocessing
from ..fronts import FRONTS
from ..linalg.autodiff import full_precision
from ..parts.shapes import Maps, Shape, Spd, Vector
from ..pooling.head import Head, HeadConfig
from ..pooling.triangle import full_matrix
from ..scorers import SCORERS
from .branch import Branch, BranchConfig, geometry

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

    Use `build_model` to make one; this class only joins the parts.

    Args:
        config: everything that makes the network, as plain data.
        branches: the networks.
        front: the part before the networks; None makes it from the configuration.
        head: the part between the networks and the scorer; None makes it from the configuration.
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
        self.temperature = 1.0  # softmax(scores / temperature) are probabilities; `bcnn.load` takes it from the notes
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
        """Return the descriptors of images, shape (B, `descriptor_length`)."""
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
            scores: Tensor = self.scorer(self.head.matrix(*maps))  # type: ignore[misc]
        return scores

    def score(self, descriptors: Tensor) -> Tensor:
        """Scores of descriptors, such as stored ones, in the precision of the scorer."""
        if self.scorer is None:
            return descriptors
        if getattr(self.scorer, "takes", Vector) is Spd:
            d = math.isqrt(descriptors.shape[-1])
            descriptors = full_matrix(descriptors) if self.config.head.triangle else descriptors.reshape(-1, d, d)
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
        self.scorer, self.temperature = None, 1.0
        if num_classes is not None:
            self.scorer = SCORERS.make(
                self.config.scorer, inputs=(self._given_to(self.config.scorer),), num_classes=num_classes
            )
        return self

    def _given_to(self, scorer: str) -> Shape:
        """The shape that a scorer is given."""
        name = SCORERS.read(scorer).name
        kind = SCORERS[name].make
        if getattr(kind, "takes", Vector) is not Spd:
            return Vector(self.descriptor_length)
        bare = not getattr(kind, "takes_normalized", False)
        if (bare and self.config.head.normalize) or self.num_crops != 1:
            raise ValueError(
                f"build_model: expected no {'normalizations and no ' * bare}crops before the scorer {name!r}, which "
                f"takes one pooled matrix per image{' as it is' * bare}, got "
                f"{(bare and self.config.head.normalize) or self.config.front}; "
                f"{'pass normalize=()' if bare else 'leave the front out'}."
            )
        return self.head.matrix_shape(*map(Maps, self.channels))

    @property
    def num_crops(self) -> int:
        """How many crops the front makes of each image."""
        return int(getattr(self.front, "num_crops", 1))

    @property
    def descriptor_length(self) -> int:
        """How many numbers the head gives per image."""
        return self.num_crops * self.head.length(*self.channels)

    @property
    def backbone(self) -> nn.Module:
        """The network of the first branch, which is the only one of most models."""
        return self.branches[0].backbone  # type: ignore[return-value]

    @property
    def preprocessing(self) -> Preprocessing:
        """How images are prepared for the network."""
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


def with_head(model: BCNN, head: HeadConfig) -> BCNN:
    """The same front and branches, shared, under another head, without a scorer."""
    config = replace(model.config, head=head, num_classes=None)
    return BCNN(config, _branches(model), model.front).eval()


def with_scorer(
    model: BCNN,
    num_classes: int | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    descriptors: Iterable[Tensor] = (),
) -> BCNN:
    """The same front, branches and head, shared, under a new scorer, or none.

    Args:
        model: the network.
        num_classes: of the scorer; None: there is none.
        weight: of a linear classifier that it takes over, (k, D).
        bias: likewise, (k,).
        descriptors: of training images, some rows at a time, for a scorer that looks at them first.
    """
    config = replace(model.config, num_classes=num_classes)
    whole = BCNN(config, _branches(model), model.front, model.head)
    if weight is not None:
        start_scorer(whole, weight, bias, descriptors)
    return whole.eval()


def start_scorer(model: BCNN, weight: Tensor, bias: Tensor | None, descriptors: Iterable[Tensor]) -> None:
    """Let a network's scorer take over a linear classifier; one that looks at training descriptors does so first."""
    scorer: Any = model.scorer
    if getattr(scorer, "looks_at_descriptors", False):
        scorer.look_at(descriptors)
    scorer.start_from(weight, bias)


def _branches(model: BCNN) -> list[Branch]:
    return list(model.branches)  # type: ignore[arg-type]
