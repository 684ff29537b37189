"""Several networks that decide together; it predicts, is saved and loaded as one network is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..data.preprocess import Preprocessing
from .bcnn import BCNN, ModelConfig
from .branch import change_pixels, geometry


@dataclass(frozen=True)
class EnsembleConfig:
    """Everything that makes an ensemble except the values of its parameters, as plain data."""

    members: tuple[ModelConfig, ...]
    weights: tuple[float, ...]  # of the scores as they come, so over the temperatures

    @property
    def backbone(self) -> str:
        """The names of the networks."""
        return ", ".join(member.backbone for member in self.members)

    @property
    def num_classes(self) -> int | None:
        """The number of classes."""
        return self.members[0].num_classes

    @property
    def preprocessing(self) -> Preprocessing:
        """That of the member which sees the largest images; the others get them made smaller."""
        return max((member.preprocessing for member in self.members), key=lambda own: own.size)


class Ensemble(nn.Module):
    r"""The weighted sum of the scores of several networks for the same classes, each over its own temperature.

    .. math:: s = \sum_k \frac{w_k}{T_k} s_k, \qquad \mathrm{softmax}(s) \propto \prod_k p_k^{w_k}

    A network whose scores are large only because of the way it was trained therefore does not outvote the others. With
    weights that sum to 1, the softmax is the geometric mean of the members' probabilities.

    Args:
        members: networks with a scorer. `bcnn.load` sets their `temperature`, T; of others it is 1.
        weights: w; None: the mean.
    """

    kind: ClassVar[str] = "ensemble"

    def __init__(self, members: Sequence[BCNN], weights: Sequence[float] | None = None):
        super().__init__()
        if not members:
            raise ValueError("Ensemble: expected at least one network, got none.")
        classes = {member.config.num_classes for member in members}
        if len(classes) != 1 or None in classes:
            got = ", ".join(sorted(map(str, classes)))
            raise ValueError(f"Ensemble: expected networks for the same number of classes, got {got}.")
        given = [1 / len(members)] * len(members) if weights is None else [float(weight) for weight in weights]
        if len(given) != len(members):
            raise ValueError(f"Ensemble: expected a weight per network, got {len(given)} for {len(members)}.")
        own = EnsembleConfig(tuple(member.config for member in members), ()).preprocessing
        for member in members:
            if geometry(member.preprocessing.at(own.size)) != geometry(own):
                raise ValueError(
                    "Ensemble: expected networks that cut the same square out of a photograph, whatever its size, got "
                    f"{geometry(member.preprocessing)} and {geometry(own)}."
                )
        self.members = nn.ModuleList(members)
        scaled = [weight / member.temperature for weight, member in zip(given, members, strict=True)]
        self.register_buffer("weights", torch.tensor(scaled, device="cpu"))
        self.config = self.live_config()

    weights: Tensor

    def forward(self, images: Tensor) -> Tensor:
        """Scores, shape (B, num_classes), of images prepared as `preprocessing` says."""
        own = self.preprocessing
        total: Tensor | None = None
        for weight, member in zip(self.weights, self.members, strict=True):
            assert isinstance(member, BCNN)
            scores = weight * member(prepared(images, own, member.config.preprocessing))
            total = scores if total is None else total + scores
        assert total is not None
        return total

    @property
    def preprocessing(self) -> Preprocessing:
        """How images are prepared for the ensemble."""
        return self.config.preprocessing

    def live_config(self) -> EnsembleConfig:
        """The configuration as the members are now."""
        members = tuple(member.live_config() for member in self.members)  # type: ignore[operator]
        return EnsembleConfig(members, tuple(self.weights.tolist()))


def prepared(images: Tensor, given: Preprocessing, wanted: Preprocessing) -> Tensor:
    """Images that were prepared for one network, as another wants them."""
    if given.size != wanted.size:
        size = (wanted.size, wanted.size)
        images = functional.interpolate(images, size=size, mode="bilinear", antialias=True, align_corners=False)
    return change_pixels(images, given, wanted)
