"""Tables of records, in the terminal and as Markdown, a section a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

Record = Mapping[str, Any]
Title = Callable[[Record], str]
Cells = Callable[[Record], list[str]]


def groups(records: Sequence[Record], title: Title) -> list[list[Record]]:
    """Records table by table."""
    return [list(group) for _, group in groupby(records, key=title)]


def terminal(
    records: Sequence[Record],
    *,
    title: Title,
    cells: Cells,
    header: Sequence[str],
    caption: str,
    is_bad: Callable[[Record], bool] = lambda record: False,
) -> Table:
    """One rich table, bad rows in red; the title above it, or above each of several groups."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    for i, name in enumerate(header):
        table.add_column(name, justify="right" if i else "left", no_wrap=bool(i), overflow="fold")
    found = groups(records, title)
    if len(found) == 1:
        table.title, table.title_justify, table.title_style = title(records[0]), "left", "bold"
    for group in found:
        if len(found) > 1:
            table.add_section()
            table.add_row(f"[bold]{title(group[0])}[/bold]")
        for record in group:
            table.add_row(*cells(record), style="red" if is_bad(record) else None)
    return table


def markdown(records: Sequence[Record], *, title: Title, cells: Cells, header: Sequence[str], note: str) -> str:
    """All groups as Markdown tables, the machine, the versions and a note underneath."""
    lines: list[str] = []
    for group in groups(records, title):
        lines += [f"**{title(group[0])}**", "", _row(header), _row(["---"] + ["---:"] * (len(header) - 1))]
        lines += [*(_row(cells(record)) for record in group), ""]
    if records:
        r = records[0]
        lines.append(
            f"{r['machine']}, {r['threads']} threads, {r.get('device', 'cpu')}, float32, torch {r['torch']}, "
            f"Python {r['python']}. {note}"
        )
    return "\n".join(lines) + "\n"


def group_of(record: Record) -> str:
    """The title where records name their table."""
    return str(record["group"])


@dataclass(frozen=True)
class Layout:
    """How one kind of records is shown."""

    header: Sequence[str]
    cells: Cells
    note: str
    title: Title = group_of

    def terminal(self, records: Sequence[Record]) -> Table:
        """One rich table, a section a group."""
        return terminal(records, title=self.title, cells=self.cells, header=self.header, caption=self.note)

    def markdown(self, records: Sequence[Record]) -> str:
        """All groups as Markdown tables."""
        return markdown(records, title=self.title, cells=self.cells, header=self.header, note=self.note)


def error(value: Any) -> str:
    """A relative error, as text."""
    return f"{float(value):.1e}"


def _row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"
