r"""The object, cut out by a box that the network finds by itself; boxes are given at training time alone.

Paper: Table 4, "Krause et al. [box in training]". Krause, Jin, Yang, Fei-Fei, "Fine-grained recognition without part
annotations", CVPR 2015.

Simpler than the original, of which no code is public:

- Foreground within a training box comes from colours of the one image (`segment_in_boxes`), where the original cuts
  graphs with models of the image, the class and the dataset.
- What finds the object at test time is a small convolutional network that has learned those foregrounds, where the
  original detects regions with an R-CNN.
- There is the object, and the whole image if wanted (``whole=True``). The original's 31 parts, which follow points of
  the foreground along a graph of similar poses, and their weights, are left out.
- The object is cut out of the square of pixels that the front is given, not of the photograph. Give it a larger one
  than the network needs (``--size 448 --front 'foreground(size=224)'``), and there is more detail in the object.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..linalg.autodiff import full_precision
from ..parts.fitting import Batches, FittedPart
from .boxes import box_of_map, cut_out, segment_in_boxes, widened
from .contract import Front

SIDE = 64  # of the small images in which objects are looked for
_BATCH = 32


class Foreground(Front, FittedPart):
    r"""Images cut down to the object in them, found by a small network p of foreground:

    .. math:: \mathrm{box} = m \mp 2 s, \quad m, s: \text{ mean and deviation of the places, weighted by } p^2

    It is fitted on training images with their boxes, which the datasets cub and cars have: the foreground of every box
    by its colours, then p by logistic regression on the pixels of all images and of what their boxes cut out. With
    ``cub:PATH,box=train`` the training images are cut out by their true boxes as well, as in the reference; in those
    the front finds nearly everything.

    Reference: Krause, Jin, Yang, Fei-Fei, CVPR 2015; the docstring of the module says what is simpler here.
    Valid: images of any size, one object in each. Learns in fine-tuning, too.
    Cost: 31 million multiplications per image; fitting takes two passes' worth of small images in memory, 25 kB each.

    Args:
        margin: what stays around the box on every side, relative to its size.
        whole: whether the whole image is described as well, before the object.
        size: the side of what comes out, and so of what the networks see; 0: that of the images.
        num_epochs: of fitting.
        lr: of fitting, by Adam.
        seed: of fitting.
    """

    wants_boxes: ClassVar[bool] = True

    def __init__(
        self,
        margin: float = 0.1,
        whole: bool = False,
        size: int = 0,
        num_epochs: int = 10,
        lr: float = 3e-3,
        seed: int = 0,
    ):
        super().__init__()
        if not 0 <= margin < 10 or size < 0 or num_epochs < 1 or not 0 < lr < 1:
            raise ValueError(
                "foreground: expected `margin` from 0 to 10, `size` >= 0, `num_epochs` >= 1 and `lr` between 0 and 1, "
                f"got {margin}, {size}, {num_epochs} and {lr}."
            )
        self.margin, self.whole, self.size = margin, whole, size
        self.num_epochs, self.lr, self.seed = num_epochs, lr, seed
        self.num_crops = 1 + whole
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = nn.Sequential(
                nn.Conv2d(5, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
                nn.Conv2d(64, 64, 3, padding=2, dilation=2), nn.ReLU(),
                nn.Conv2d(64, 64, 3, padding=4, dilation=4), nn.ReLU(),
                nn.Conv2d(64, 1, 1),
            )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """The object of every image, after the whole image if wanted, shape (B, 1 or 2, 3, H, W)."""
        self.check_fitted()
        size = (self.size, self.size) if self.size else (images.shape[-2], images.shape[-1])
        crops = cut_out(images, self.boxes(images), size)
        if not self.whole:
            return crops[:, None]
        if images.shape[-2:] != crops.shape[-2:]:
            images = functional.interpolate(images, size=size, mode="bilinear", antialias=True, align_corners=False)
        return torch.stack([images, crops], 1)

    def boxes(self, images: Tensor) -> Tensor:
        """Where it cuts, the margin included, shape (B, 4), from 0 to 1."""
        with full_precision(images):
            return widened(box_of_map(self.logits(small(images)).sigmoid().square()), self.margin)

    def logits(self, images: Tensor) -> Tensor:
        """Of foreground, from small images, shape (B, 16, 16)."""
        places = torch.linspace(-1, 1, SIDE, device=images.device, dtype=images.dtype)
        y, x = torch.meshgrid(places, places, indexing="ij")
        place = torch.stack([x, y]).expand(images.shape[0], -1, -1, -1)
        weight = self.network[0].weight
        found: Tensor = self.network(torch.cat([images, place], 1).to(weight.dtype))  # type: ignore[arg-type]
        return found[:, 0]

    def fit(self, batches: Batches) -> None:
        """Foregrounds by colour from boxes, then the network that finds them without."""
        pictures, maps = [], []
        for images, boxes in batches():
            around = widened(boxes, self.margin)
            seen = small(images)
            p = segment_in_boxes(seen, boxes)
            pictures += [seen.half().cpu(), small(cut_out(images, around)).half().cpu()]
            maps += [p.cpu(), cut_out(p[:, None], around)[:, 0].cpu()]
        if not pictures:
            raise ValueError(
                "foreground: expected training images with boxes, got none; the datasets cub and cars have them."
            )
        self._learn(torch.cat(pictures), torch.cat(maps))
        self.mark_fitted()

    @torch.enable_grad()
    def _learn(self, pictures: Tensor, maps: Tensor) -> None:
        """Logistic regression on all pixels, half of the pictures mirrored."""
        generator = torch.Generator().manual_seed(self.seed)
        device = self.fitted.device
        optimizer = torch.optim.Adam(self.network.parameters(), lr=self.lr)
        steps = self.num_epochs * -(-len(pictures) // _BATCH)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
        for _ in range(self.num_epochs):
            for some in torch.randperm(len(pictures), generator=generator).split(_BATCH):
                x, t = pictures[some].float().to(device), maps[some].to(device)
                if torch.rand((), generator=generator) < 0.5:
                    x, t = x.flip(-1), t.flip(-1)
                logits = self.logits(x)
                t = functional.adaptive_avg_pool2d(t, logits.shape[-1])
                optimizer.zero_grad()
                functional.binary_cross_entropy_with_logits(logits, t).backward()
                optimizer.step()
                schedule.step()
        self.network.zero_grad(set_to_none=True)

    def extra_repr(self) -> str:
        """Show the options that still matter after fitting."""
        return f"margin={self.margin:g}, whole={self.whole}, size={self.size}"


def small(images: Tensor) -> Tensor:
    """64 x 64 pixels of mean 0 and deviation 1 per image, whatever pixels the network wants; at least float32."""
    images = images.to(torch.promote_types(images.dtype, torch.float32))
    images = functional.interpolate(images, size=(SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False)
    mean = images.mean((1, 2, 3), keepdim=True)
    deviation = images.var((1, 2, 3), keepdim=True, correction=0).add(1e-12).sqrt()
    return (images - mean) / deviation
