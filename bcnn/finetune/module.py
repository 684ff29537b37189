"""The network as it is trained, from pixels or from the stored output of its frozen layers; who learns how fast."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import unknown_name
from ..models.bcnn import BCNN
from ..parts.shapes import Maps, Spd
from .config import FinetuneConfig


class Trained(nn.Module):
    """A network with a scorer, given images, or the output of the layer `start`.

    Batch statistics stay as they are, so that processes need not share them.
    """

    def __init__(self, model: BCNN, start: str | None = None):
        super().__init__()
        self.model, self.start = model, start

    def forward(self, values: Tensor) -> Tensor:
        """Scores, shape (B, classes); NaN where a layer refuses values that are not finite.

        No process may leave the others alone in a step: what is wrong is found out afterwards.
        """
        try:
            return self.scores(values)
        except ArithmeticError:
            return values.new_full((len(values), self.model.config.num_classes or 1), float("nan"))

    def scores(self, values: Tensor) -> Tensor:
        """Scores, or the layer's error."""
        if self.start is None:
            scores: Tensor = self.model(values)
            return scores
        (branch,) = self.model.branches
        return self.model.score_maps((branch.after(self.start, values),))  # type: ignore[operator]

    def train(self, mode: bool = True) -> Trained:
        """As `nn.Module.train`, but for batch statistics."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self


def make_optimizer(model: BCNN, config: FinetuneConfig) -> torch.optim.SGD:
    """Stochastic gradient descent with momentum; a group of parameters for every learning rate and weight decay."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    scales = [_by_parameter(model, named, option, config.factors(option)) for option in ("lr_scale", "decay_scale")]
    for parameter, rate, decay in zip(named.values(), *scales, strict=True):
        groups[rate, decay].append(parameter)
    if not groups:
        raise ValueError("finetune: expected something to train, got a network that is frozen throughout.")
    options: list[dict[str, Any]] = [
        {"params": some, "lr_factor": rate, "weight_decay": decay * config.weight_decay}
        for (rate, decay), some in groups.items()
    ]
    return torch.optim.SGD(options, lr=config.lr, momentum=config.momentum)


def _by_parameter(model: BCNN, names: Iterable[str], option: str, factors: Mapping[str, float]) -> list[float]:
    """The factor of every parameter; a part that is none of the network's is refused."""
    parts = [[part for part in factors if f".{part}." in f".{name}."] for name in names]
    unused = [part for part in factors if not any(part in own for own in parts)]
    if unused:
        known = [name for name, module in model.named_modules() if name and any(True for _ in module.parameters())]
        raise unknown_name("finetune", f"part to train in {option}", unused[0], known)
    return [factors[own[-1]] if own else 1.0 for own in parts]


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group of parameters, each by its own factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_factor"]


def memory_note(model: BCNN) -> str:
    """What training keeps of the scorer, its gradient and momentum, and what the upper triangle saves of it."""
    scorer = model.scorer
    assert scorer is not None
    length, shape = model.descriptor_length, model.head.pooling.shape(*map(Maps, model.channels))
    used = 3 * 4 * sum(p.numel() for p in scorer.parameters()) / 1e6
    note = f"scorer {length} x {model.config.num_classes}: {used:.3g} MB with gradient and momentum"
    if isinstance(shape, Spd) and length == shape.triangle < shape.size:
        whole = used * shape.size / length
        note += f" (upper triangle; the whole {shape.dim} x {shape.dim} matrix would take {whole:.3g} MB)"
    return note
