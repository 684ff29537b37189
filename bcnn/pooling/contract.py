"""What a pooling and a normalization promise the head."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from ..parts.shapes import Shape


class Pooling(nn.Module):
    """From the features of an image to one vector or matrix; options, buffers and fitted values are its own.

    A subclass writes `shape` and ``forward(*features, layout="maps", mask=None)``, with as many features as
    `num_inputs` says. `layout` is "maps" for (B, C, H, W) and (B, C, L), "tokens" for (B, N, C); `mask` is True where a
    location is valid, shape (B, H, W), (B, L) or (B, N). It gives (B, m), (B, d, e), or a `Factored` (B, d, d), in
    float32 at least.

    If its class takes `inputs`, it is told the shapes of the features when it is built; if it is a `FittedPart` as
    well, it is fitted on training images.
    """

    num_inputs: ClassVar[int] = 1  # networks whose features it takes

    def shape(self, *inputs: Shape) -> Shape:
        """What comes out per image, for features of these shapes; an error in words if they do not fit."""
        raise NotImplementedError

    @property
    def has_ridge(self) -> bool:
        """Whether it gives a `Factored` matrix with a ridge, which the thin path asks for."""
        return False

    # Experiments store pooled features once for many heads: without what can be added later.

    @property
    def stored_as(self) -> str | None:
        """The text of the pooling whose results are stored in the place of this one's; None: its own."""
        return None

    def complete(self, pooled: Tensor) -> Tensor:
        """The results of this pooling from those that were stored."""
        return pooled


class Normalization(nn.Module):
    """A part between pooling and scorer; a subclass says what it works on.

    Matrix functions, which work on whole matrices (``takes = "spd"``), are in `bcnn.matfun.modules`.
    """

    takes: ClassVar[str] = "entries"  # "spd": a whole matrix; "entries": each by itself; "vector": the descriptor
    weighted: ClassVar[bool] = False  # sums over entries, so has to know how often each stands in the matrix
    takes_applied: ClassVar[bool] = False  # after a matrix function it wants that unapplied (`bcnn.matfun.thin_factor`)

    def shape(self, given: Shape) -> Shape:
        """The result has the shape of the input."""
        return given
