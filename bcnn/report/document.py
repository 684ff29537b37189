"""A report as plain data: sections of text, tables, pictures and folded text, for any of the writers beside this file.

Nothing in it is HTML, Markdown or LaTeX: `page`, `markdown` and `latex` escape what they are given.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = tuple[int, int]


@dataclass(frozen=True)
class Table:
    """Rows of text under a header.

    Attributes:
        rows: as long as the header, "" for an empty cell.
        num_labels: so many first columns name the row and stand left; the others stand right.
        note: how to read it, printed small underneath.
        strong: cells in bold, as (row, column).
        faint: cells in grey, such as "not run".
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_labels: int = 1
    note: str = ""
    strong: frozenset[Cell] = frozenset()
    faint: frozenset[Cell] = frozenset()

    def __post_init__(self) -> None:
        for i, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise ValueError(
                    f"table {self.title!r}: expected {len(self.header)} cells in every row, one a column of the "
                    f'header, got {len(row)} in row {i}; write "" for an empty cell.'
                )


@dataclass(frozen=True)
class Picture:
    """An SVG file, or one of another kind, and in words (`alt`) what it shows, for those who cannot see it."""

    title: str
    content: bytes
    alt: str
    note: str = ""
    kind: str = "image/svg+xml"


@dataclass(frozen=True)
class Gallery:
    """Small pictures side by side, each with its title and its note."""

    title: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Details:
    """Preformatted text that is folded away until opened."""

    title: str
    text: str


@dataclass(frozen=True)
class Section:
    """Paragraphs, then blocks; `anchor`, such as "table1_normalization", is its name in links and LaTeX labels."""

    title: str
    anchor: str
    text: tuple[str, ...] = ()
    blocks: tuple[Table | Picture | Gallery | Details, ...] = ()


@dataclass(frozen=True)
class Document:
    """A title, what matters most in a few paragraphs, and sections."""

    title: str
    lead: tuple[str, ...]
    sections: tuple[Section, ...]


def picture_of(figure: Figure, *, title: str, alt: str, note: str = "") -> Picture:
    """A plot as SVG: equal plots give equal bytes; letters are drawn as shapes, so that no font is needed to see them.

    Example:
        >>> from matplotlib.figure import Figure
        >>> picture_of(Figure(), title="Nothing", alt="an empty plot").alt
        'an empty plot'
    """
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "bcnn"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return Picture(title=title, content=buffer.getvalue(), alt=alt, note=note)
