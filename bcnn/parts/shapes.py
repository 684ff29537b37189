"""What travels between the parts of a network, per image: said when it is built, not guessed when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar


@dataclass(frozen=True)
class Shape:
    """What a part takes or gives per image: one of the kinds below."""

    kind: ClassVar[str] = "features"

    @property
    def size(self) -> int:
        """How many numbers describe an image, where that does not depend on the image."""
        raise ValueError(f"a part that gives {self} has no fixed size")


@dataclass(frozen=True)
class Maps(Shape):
    """Features of `channels` numbers at every location, any number of locations."""

    channels: int

    def __str__(self) -> str:
        return f"features of {self.channels} channels"


@dataclass(frozen=True)
class Vector(Shape):
    """A vector of `length` numbers per image."""

    length: int
    kind: ClassVar[str] = "a vector"

    @property
    def size(self) -> int:
        return self.length

    def __str__(self) -> str:
        return f"a vector of {self.length} numbers"


@dataclass(frozen=True)
class Matrix(Shape):
    """A matrix of `rows` x `columns`, neither symmetric nor square in general."""

    rows: int
    columns: int
    kind: ClassVar[str] = "a matrix"

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def __str__(self) -> str:
        return f"a {self.rows} x {self.columns} matrix"


@dataclass(frozen=True)
class Spd(Shape):
    """A symmetric positive semi-definite matrix of `dim` x `dim`, formed or not."""

    dim: int
    kind: ClassVar[str] = "a symmetric positive semi-definite matrix"

    @property
    def size(self) -> int:
        return self.dim**2

    @property
    def triangle(self) -> int:
        """How many entries lie on and above the diagonal."""
        return self.dim * (self.dim + 1) // 2

    def __str__(self) -> str:
        return f"a symmetric positive semi-definite {self.dim} x {self.dim} matrix"


S = TypeVar("S", bound=Shape)


def expect(who: str, kind: type[S], given: Shape, remedy: str = "") -> S:
    """The shape itself, if it is of that kind; else an error that says what was expected and what came."""
    if not isinstance(given, kind):
        raise ValueError(f"{who}: expected {kind.kind}, got {given}{'; ' + remedy if remedy else ''}.")
    return given


def expect_maps(who: str, inputs: tuple[Shape, ...], count: int) -> tuple[Maps, ...]:
    """Check that there are features of this many networks, and return their shapes."""
    if len(inputs) != count:
        wanted = "one network" if count == 1 else f"{count} networks"
        raise ValueError(f"{who}: expected the features of {wanted}, got those of {len(inputs)}.")
    return tuple(expect(who, Maps, shape) for shape in inputs)
