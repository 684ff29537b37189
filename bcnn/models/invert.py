r"""Images that a class, or the features of a photograph, look like: the network run backwards.

.. math:: \min_x \; L(x) + \gamma \, \Gamma(x), \qquad
    \Gamma(x) = \frac1n \sum_{ij} \big( (x_{i,j+1} - x_{ij})^2 + (x_{i+1,j} - x_{ij})^2 \big)

L is :math:`-\log p_k(x)` for a class, and for a photograph, with A_l the pooled second-order statistics of layer l,

.. math:: L(x) = \frac1{|\mathcal L|} \sum_{l \in \mathcal L} \frac{\|A_l(x) - A_l\|_F^2}{\|A_l\|_F^2}

Reference: Lin & Maji, "Visualizing and understanding deep texture representations", CVPR 2016, Sec. 4 and 5 (category
inversion and texture synthesis by bilinear features, L-BFGS, total variation with beta = 2, relu2_2 to relu5_3 of
VGG-D); Gatys et al., "Texture synthesis using convolutional neural networks", NIPS 2015. They invert classifiers on
several layers at once; here the class is the one that the run was trained for, at its one layer.

The image is a sigmoid of Fourier coefficients that are weighted by 1 / sqrt(frequency), between noise and photographs:
large shapes come before small ones, and every pixel is a colour. For a class, each block of steps moves the image a
little, so that nothing hangs on where the grid of the network's locations lies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.preprocess import Preprocessing
from ..errors import unknown_name
from ..pooling.bilinear import bilinear_pool
from ..progress import Progress, silent
from .backbones.contract import Backbone
from .bcnn import BCNN

STAGE = "making a picture, steps"
DESCRIPTOR = "descriptor"  # in the place of a layer's name: what the head makes of the last one
BLOCK = 20  # steps between two shifts of the image
SHIFT = 0.04  # of the side, for a class
NOISE = 0.3  # the deviation of the noise at the start, before the sigmoid

Loss = Callable[[Tensor], Tensor]  # from images with pixels of 0 to 1, shape (1, 3, H, W)


@dataclass(frozen=True)
class Inverted:
    """The finished picture, and how far the loss fell."""

    pixels: Tensor  # (3, H, W), 0 to 1
    start: Tensor  # the noise that it was made from
    first_loss: float  # of the start, without the prior
    loss: float


def total_variation(images: Tensor) -> Tensor:
    """The prior, for images (..., H, W): the mean squared difference of neighbours, both ways added."""
    across = images[..., :, 1:] - images[..., :, :-1]
    down = images[..., 1:, :] - images[..., :-1, :]
    return across.square().mean() + down.square().mean()


def as_input(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Pixels of 0 to 1, shape (B, 3, H, W), as a network wants them."""
    mean, std = (images.new_tensor(own)[:, None, None] for own in (preprocessing.mean, preprocessing.std))
    return (images * preprocessing.pixel_max - mean) / std


def class_loss(
    scores: Callable[[Tensor], Tensor], preprocessing: Preprocessing, label: int, temperature: float
) -> Loss:
    """The loss -log p of a class."""

    def loss(images: Tensor) -> Tensor:
        logits = scores(as_input(images, preprocessing)).float() / temperature
        return -logits.log_softmax(-1)[:, label].mean()

    return loss


def texture_loss(model: BCNN, photograph: Tensor, layers: Sequence[str] | None = None) -> Loss:
    """How far the statistics of an image are from those of a photograph, at some layers.

    Args:
        model: with one branch, a network of `BACKBONES`.
        photograph: as the network wants it, shape (3, H, W).
        layers: names of layers, and "descriptor"; None: those after which a map gets smaller, and the last.
    """
    backbone = _backbone_of(model)
    chosen = list(layers) if layers else resolution_ends(backbone, photograph.shape[-1])
    for name in chosen:
        if name not in (DESCRIPTOR, *backbone.layers._modules):
            raise unknown_name("invert", "layer", name, (*backbone.layers._modules, DESCRIPTOR))
    with torch.no_grad():
        wanted = _statistics(model, photograph[None], chosen)

    def loss(images: Tensor) -> Tensor:
        found = _statistics(model, as_input(images, model.preprocessing), chosen)
        parts = [(a - b).square().sum() / b.square().sum().clamp_min(1e-30) for a, b in zip(found, wanted, strict=True)]
        return torch.stack(parts).mean()

    return loss


def resolution_ends(backbone: Backbone, size: int) -> list[str]:
    """The layers after which a map gets smaller, and the last one: relu1_2, relu2_2, ..., relu5_3 of VGG-D."""
    ends: list[str] = []
    before, side = "", size
    with torch.device("meta"):
        values = torch.zeros(1, 3, size, size)
    layers = backbone.layers
    for name, layer in layers.named_children():
        values = torch.func.functional_call(
            layer, {key: torch.empty_like(own, device="meta") for key, own in layer.state_dict().items()}, (values,)
        )
        if values.shape[-1] < side and before:
            ends.append(before)
        before, side = name, values.shape[-1]
    return [*ends, before]


def invert(
    loss: Loss,
    size: int,
    *,
    prior: float = 1.0,
    steps: int = 200,
    shift: float = 0.0,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = silent,
) -> Inverted:
    """Find an image with a small loss that is smooth, by L-BFGS from noise.

    Args:
        loss: of images (1, 3, size, size) with pixels of 0 to 1.
        size: the side in pixels.
        prior: gamma, the weight of the total variation.
        steps: of L-BFGS.
        shift: how far the image is moved at most before a block of steps, relative to its side.
        seed: of the noise and the shifts.
        device: where to compute.
        progress: hears of every step.
    """
    if not (math.isfinite(prior) and prior >= 0):
        raise ValueError(f"invert: expected a finite prior >= 0, got {prior}; 1000 makes smooth pictures of classes.")
    generator = torch.Generator().manual_seed(seed)
    weight = _spectrum(size).to(device)
    noise = (NOISE * torch.randn(3, size, size, generator=generator)).to(device)
    z = _filtered(noise, weight).requires_grad_()  # smoother: grain at the start would stay to the end
    most = int(shift * size)

    def picture() -> Tensor:
        return torch.sigmoid(_filtered(z, weight))

    with torch.no_grad():
        start = picture()
        first = float(loss(start[None]))
    if not math.isfinite(first):
        raise ArithmeticError(f"invert: expected a finite loss of the image at the start, got {first}.")
    best, kept = first, z.detach().clone()
    progress(STAGE, 0, steps, f"loss {first:.4g}")
    for done in range(0, steps, BLOCK):
        count = min(BLOCK, steps - done)
        moved = torch.randint(-most, most + 1, (2,), generator=generator).tolist()
        optimizer = torch.optim.LBFGS(
            [z],
            max_iter=count,
            history_size=BLOCK,
            tolerance_grad=0.0,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )

        def objective(moved: list[int] = moved, optimizer: torch.optim.LBFGS = optimizer) -> Tensor:
            optimizer.zero_grad()
            image = picture()
            value = loss(image.roll(moved, (-2, -1))[None]) + prior * total_variation(image)
            value.backward()
            return value

        optimizer.step(objective)
        with torch.no_grad():
            now = float(loss(picture()[None]))
        if math.isfinite(now) and now <= best:
            best, kept = now, z.detach().clone()
        elif not math.isfinite(now):
            break
        progress(STAGE, done + count, steps, f"loss {now:.4g}")
    with torch.no_grad():
        z.copy_(kept)
        return Inverted(picture().cpu(), start.cpu(), first, best)


def _spectrum(size: int) -> Tensor:
    """Weights of Fourier coefficients, shape (size, size // 2 + 1): 1 / sqrt(frequency), of mean square 1."""
    across = torch.fft.rfftfreq(size)[None]
    down = torch.fft.fftfreq(size)[:, None]
    weight = torch.hypot(across, down).clamp_min(1 / size).rsqrt()
    return weight / weight.square().mean().sqrt()


def _filtered(values: Tensor, weight: Tensor) -> Tensor:
    """Values (..., H, W) with every Fourier coefficient multiplied by its weight."""
    result: Tensor = torch.fft.irfft2(torch.fft.rfft2(values) * weight, s=values.shape[-2:])
    return result


def _backbone_of(model: BCNN) -> Backbone:
    if len(model.branches) != 1 or not isinstance(model.backbone, Backbone):
        raise ValueError(
            f"invert: expected a model of one network of bcnn for a photograph, got {model.config.backbone}; a class "
            "can be inverted with any."
        )
    return model.backbone


def _statistics(model: BCNN, images: Tensor, names: Sequence[str]) -> list[Tensor]:
    """Pooled matrices of the layers by these names, in the network's order, then the descriptor."""
    found = []
    values = images.contiguous(memory_format=torch.channels_last)
    wanted = set(names)
    for name, layer in model.backbone.layers.named_children():  # type: ignore[union-attr]
        values = layer(values)
        if name in wanted:
            found.append(bilinear_pool(values.clone(), eps=0.0))  # the next layer may work in place
            if name == next(reversed(names)):
                break
    if DESCRIPTOR in wanted:
        found.append(model.describe(images))
    return found
