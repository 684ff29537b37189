"""A report as plain data: sections of text, tables, pictures and folded text, for any of the writers beside this file.

Nothing in it is HTML, Markdown or LaTeX: `page`, `markdown` and `latex` escape what they are given.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = tuple[int, int]

_PNG = b"\x89PNG"
_ANCHOR = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")  # no colon: it numbers the labels of the LaTeX tables


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
        width, height = len(self.header), len(self.rows)
        for i, row in enumerate(self.rows):
            if len(row) != width:
                raise ValueError(
                    f"table {self.title!r}: expected {width} cells in every row, one a column of the header, "
                    f'got {len(row)} in row {i}; write "" for an empty cell.'
                )
        for row_index, column in sorted(self.strong | self.faint):
            if not (0 <= row_index < height and 0 <= column < width):
                raise ValueError(
                    f"table {self.title!r}: expected strong and faint cells within {height} rows and {width} columns, "
                    f"got {(row_index, column)}; count from 0, the header left out."
                )


@dataclass(frozen=True)
class Picture:
    """An SVG or PNG file, and in words (`alt`) what it shows, for those who cannot see it."""

    title: str
    content: bytes
    alt: str
    note: str = ""

    def __post_init__(self) -> None:
        if not self.content.startswith(_PNG) and b"<svg" not in self.content[:4096]:
            raise ValueError(
                f"picture {self.title!r}: expected the content of an SVG or PNG file, got {self.content[:12]!r}; "
                "save it as one of them, or use picture_of."
            )

    @property
    def media_type(self) -> str:
        """As told from the content."""
        return "image/png" if self.content.startswith(_PNG) else "image/svg+xml"


@dataclass(frozen=True)
class Details:
    """Preformatted text that is folded away until opened."""

    title: str
    text: str


@dataclass(frozen=True)
class Section:
    """Paragraphs, then blocks; `anchor` is its name in links, such as "table1_normalization"."""

    title: str
    anchor: str
    text: tuple[str, ...] = ()
    blocks: tuple[Table | Picture | Details, ...] = ()

    def __post_init__(self) -> None:
        if not _ANCHOR.fullmatch(self.anchor):
            raise ValueError(
                f"section {self.title!r}: expected an anchor of letters, digits, '_', '-' and '.', a letter first, "
                f"got {self.anchor!r}; it becomes part of links and LaTeX labels."
            )


@dataclass(frozen=True)
class Document:
    """A title, what matters most in a few paragraphs, and sections."""

    title: str
    lead: tuple[str, ...]
    sections: tuple[Section, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for section in self.sections:
            if section.anchor in seen:
                raise ValueError(
                    f"document {self.title!r}: expected anchors that differ, got {section.anchor!r} twice; "
                    f"rename that of section {section.title!r}."
                )
            seen.add(section.anchor)


def picture_of(figure: Figure, *, title: str, alt: str, note: str = "") -> Picture:
    """A plot as SVG: equal plots give equal bytes; letters are drawn as shapes, so that no font is needed to see them.

    Example:
        >>> from matplotlib.figure import Figure
        >>> picture_of(Figure(), title="Nothing", alt="an empty plot").media_type
        'image/svg+xml'
    """
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "bcnn"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return Picture(title=title, content=buffer.getvalue(), alt=alt, note=note)
