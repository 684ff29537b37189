"""A trained network as one function from pixels to probabilities, for programs that know nothing of bcnn.

Paper: Sec. 3.2, predictions averaged over an image and its flipped copy.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..matfun.by_products import ByProducts, product_forms
from .bcnn import BCNN
from .ensemble import Ensemble

# The product-only forms of a matrix function, from the cheapest to the most exact; see `ByProducts`.
FORMS: tuple[dict[str, Any], ...] = (
    {"dtype": torch.float32},
    {"dtype": torch.float64},
    {"dtype": torch.float64, "lower": 1e-12},
)
DECOMPOSITIONS = ("eigh", "eigvals", "svd", "cholesky", "solve", "linalg_inv", "linalg_qr", "pinv")  # in names
LARGEST_SIDE = 4096  # of an image, where its size is left open


class Deployed(nn.Module):
    """Probabilities of the classes, shape (B, k), of RGB images in [0, 1], float32, shape (B, 3, H, W).

    What comes before is left to the caller: decoding a file and resizing it to the square that the network sees.

    Args:
        model: a network or an ensemble with a scorer; it is copied.
        temperature: what scores are divided by before the softmax.
        flips: whether the scores of the mirror image are averaged with those of the image.
        form: how matrix functions are computed, as one of `FORMS`; None leaves them as they are, decompositions
            included.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, model: BCNN | Ensemble, *, temperature: float, flips: bool, form: dict[str, Any] | None = None):
        super().__init__()
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        if form is not None:
            product_forms(self.model, **form)
        self.temperature, self.flips = temperature, flips
        own = model.preprocessing
        scale = [own.pixel_max / std for std in own.std]
        shift = [-mean / std for mean, std in zip(own.mean, own.std, strict=True)]
        for name, values in (("scale", scale), ("shift", shift)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32)[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        """Probabilities, shape (B, k)."""
        values = images * self.scale + self.shift
        if self.flips:
            values = torch.cat([values, values.flip(-1)])
        scores: Tensor = self.model(values)
        if self.flips:
            scores = scores.unflatten(0, (2, -1)).mean(0)
        return (scores / self.temperature).softmax(-1)

    @property
    def functions(self) -> list[ByProducts]:
        """The matrix functions in their product-only form."""
        return [module for module in self.model.modules() if isinstance(module, ByProducts)]


def record(network: Deployed, size: int, *, dynamic: bool = True) -> tuple[Any, bool]:
    """The network as a graph of `torch.export`, for any number of images, and whether it is for any size as well.

    Args:
        network: what to record.
        size: the side of the images it was trained with.
        dynamic: whether to leave the size open where every part allows that; else, and elsewhere, it is fixed.
    """
    batch = torch.export.Dim("batch", min=1)
    if dynamic and (least := _least_side(network.model)):
        sides = {2 + i: torch.export.Dim(n, min=least, max=LARGEST_SIDE) for i, n in enumerate(("height", "width"))}
        try:
            return _recorded(network, size, {0: batch, **sides}), True
        except Exception:  # some part has to know the size; the recorder has an error of its own kind for every reason
            pass
    try:
        return _recorded(network, size, {0: batch}), False
    except Exception as error:
        raise ValueError(
            f"export: expected a network whose parts torch can record, got {_parts_of(network.model)}, which it "
            f"refuses: {_first_line(error)}; use bcnn predict."
        ) from None


@torch.no_grad()
def _recorded(network: Deployed, size: int, dynamic: dict[int, Any]) -> Any:
    example = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    return torch.export.export(network, (example,), dynamic_shapes={"images": dynamic})


def missing_in_products(program: Any) -> str | None:
    """The first decomposition that a recorded network still contains, and the part that asks for it; None: none."""
    for node in program.graph.nodes:
        name = str(node.target)
        if node.op == "call_function" and any(word in name for word in DECOMPOSITIONS):
            stack = node.meta.get("nn_module_stack") or {}
            where = [kind for path, kind in stack.values() if path]
            inside = getattr(where[-1], "__name__", str(where[-1]).rsplit(".", 1)[-1]) if where else "the network"
            return f"{name.split('.')[1]} in {inside}"
    return None


def _least_side(model: nn.Module) -> int:
    """The smallest image that every network inside takes; 0 if one of them does not say, as transformers do not."""
    backbones = [branch.backbone for member in _members(model) for branch in member.branches]
    sides = [int(getattr(backbone, "min_size", 0)) for backbone in backbones]
    return max(sides) if all(sides) else 0


def _members(model: nn.Module) -> list[BCNN]:
    found: Any = model.members if isinstance(model, Ensemble) else [model]
    return list(found)


def _parts_of(model: nn.Module) -> str:
    configs = [member.config for member in _members(model)]
    front = [f"the front {config.front!r}" for config in configs if config.front]
    return ", ".join([*front, *(f"{c.backbone} with {c.head.pooling} and the scorer {c.scorer}" for c in configs)])


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300].rstrip(".")
