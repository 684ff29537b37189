"""A document as Markdown, as GitHub reads it; pictures are told in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .document import Details, Document, Gallery, Picture, Table

# What Markdown would take for its own; an underscore inside a word is safe, and names are full of them.
_SPECIAL = re.compile(r"[\\`*<$~\[|]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
_OPENING = re.compile(r">|-{2,}|([+-]|#{1,6}|\d+[.)])(?=\s|$)")  # of a quote, rule, list or heading


def render_markdown(document: Document) -> str:
    """The whole document; paragraphs, tables and code apart by an empty line."""
    return "\n\n".join(_parts(document)) + "\n"


def table_markdown(table: Table) -> str:
    """A table in Markdown: its title in bold, the table, its note."""
    rule = ["---"] * table.num_labels + ["---:"] * (len(table.header) - table.num_labels)
    lines = [_row([_inline(name) for name in table.header]), _row(rule[: len(table.header)])]
    for i, row in enumerate(table.rows):
        lines.append(_row([_cell(text, strong=(i, j) in table.strong) for j, text in enumerate(row)]))
    return _joined(f"**{_inline(table.title)}**" if table.title else "", "\n".join(lines), _paragraph(table.note))


def _parts(document: Document) -> Iterator[str]:
    yield f"# {_inline(document.title)}"
    yield from map(_paragraph, document.lead)
    for section in document.sections:
        yield f"## {_inline(section.title)}"
        yield from map(_paragraph, section.text)
        yield from map(_block, section.blocks)


def _block(block: Table | Picture | Gallery | Details) -> str:
    if isinstance(block, Table):
        return table_markdown(block)
    if isinstance(block, Gallery):
        return "\n".join(f"- {_inline(one.title)}: {_inline(one.note or one.alt)}" for one in block.pictures)
    if isinstance(block, Picture):
        return _joined(f"*{_inline(block.title)}: {_inline(block.alt)}*", _paragraph(block.note))
    return _joined(f"**{_inline(block.title)}**", _fenced(block.text))


def _fenced(text: str) -> str:
    """As code; the fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _paragraph(text: str) -> str:
    text = _inline(text)
    opening = _OPENING.match(text)
    at = opening.end() - 1 if opening else 0
    return f"{text[:at]}\\{text[at:]}" if opening else text


def _inline(text: str) -> str:
    """The text on one line, with all special characters escaped."""
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", re.sub(r"\s*\n\s*", " ", text.strip()))


def _cell(text: str, *, strong: bool) -> str:
    text = _inline(text)
    return f"**{text}**" if strong and text else text


def _row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
