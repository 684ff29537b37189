"""Records as tables: columns are declared once, and the terminal, Markdown, a CSV file and a plot follow from them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import MOST_TEXT, check_regular, read_csv, write_csv, written_whole
from . import figures
from .document import Table
from .markdown import table_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group

Record = Mapping[str, Any]  # of a run, or read from its CSV file, where every value is text
MACHINE = ("machine", "threads", "torch", "python")  # what the note under the tables tells of it


@dataclass(frozen=True)
class Column:
    """A field of the records, and how a table shows it.

    Attributes:
        key: the field.
        title: the heading; a column without one is kept in the file alone.
        form: a format of numbers such as ".2f", or a function that writes the cell from the whole record. A value
            that is missing becomes an empty cell in either case.
        short: the heading in the terminal, where it differs.
    """

    key: str
    title: str = ""
    form: str | Callable[[Record], str] = ""
    short: str = ""

    def text(self, record: Record) -> str:
        """The text of this column for one record."""
        value = record[self.key]
        if is_missing(value):
            return ""
        if callable(self.form):
            return self.form(record)
        return format(float(value), self.form) if self.form else str(value)


@dataclass(frozen=True)
class Layout:
    """How one kind of records is shown.

    Attributes:
        columns: those with a title make the table, the first of them names the row.
        note: how to read the table; printed below it.
        title: what the records of one table share; a new title begins a new table.
        bars: fields to draw as bars, with the label of the axis of each.
        plot: draws the records where bars will not do.
        caption: stands below the table in the terminal instead of the note.
        is_bad: which records the terminal shows in red.
    """

    columns: tuple[Column, ...]
    note: str
    title: Callable[[Record], str] = lambda record: str(record["group"])
    bars: Mapping[str, str] = field(default_factory=dict)
    plot: Callable[[Sequence[Record]], Figure] | None = None
    caption: str = ""
    is_bad: Callable[[Record], bool] = lambda _: False

    @property
    def shown(self) -> list[Column]:
        """The columns that are shown in the table."""
        return [column for column in self.columns if column.title]

    def cells(self, record: Record) -> tuple[str, ...]:
        """The texts of one row."""
        return tuple(column.text(record) for column in self.shown)

    def groups(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Records by the title of their table, in order of the first of each."""
        found: dict[str, list[Record]] = {}
        for record in records:
            found.setdefault(self.title(record), []).append(record)
        return found

    def tables(self, records: Sequence[Record]) -> list[Table]:
        """One table per title; the last one tells the machine, the versions and the note."""
        header = tuple(column.title for column in self.shown)
        found = self.groups(records)
        notes = [""] * (len(found) - 1) + [f"{_machine(records[0])} {self.note}"] if found else []
        return [
            Table(title, header, tuple(map(self.cells, group)), note=note)
            for (title, group), note in zip(found.items(), notes, strict=True)
        ]

    def markdown(self, records: Sequence[Record]) -> str:
        """Return all tables as Markdown."""
        return "\n\n".join(map(table_markdown, self.tables(records))) + "\n"

    def terminal(self, records: Sequence[Record]) -> Group:
        """A table per title for the terminal, without the columns that have nothing to say there."""
        from rich import box
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        tables: list[Table | Text] = []
        for title, group in self.groups(records).items():
            shown = [column for column in self.shown if any(column.text(record) for record in group)]
            table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
            table.title, table.title_justify, table.title_style = escape(title), "left", "bold"
            for i, column in enumerate(shown):
                heading = column.short or column.title
                table.add_column(heading, justify="right" if i else "left", no_wrap=bool(i), overflow="fold")
            for record in group:
                cells = (escape(column.text(record)) for column in shown)
                table.add_row(*cells, style="red" if self.is_bad(record) else None)
            tables.append(table)
        caption = [Text(self.caption or self.note, style="dim italic")] if tables else []
        return Group(*tables, *caption)

    def figure(self, records: Sequence[Record]) -> Figure:
        """The plot: the layout's own, or a panel of bars per table and field."""
        if self.plot is not None:
            return self.plot(records)
        panels = []
        for title, group in self.groups(records).items():
            for key, label in self.bars.items():
                known = [record for record in group if not is_missing(record[key])]
                names = [self.shown[0].text(record) for record in known]
                if known:
                    panels.append(figures.Panel(title, names, [float(record[key]) for record in known], label))
        return figures.bar_figure(panels)

    def write(self, records: Sequence[dict[str, Any]], stem: Path) -> None:
        """The records as `stem`.csv, their tables as .md, their plot as .png; see `check_place` for files of others."""
        write_csv(stem.with_name(f"{stem.name}.csv"), records)
        with written_whole(stem.with_name(f"{stem.name}.md")) as temporary:
            temporary.write_text(self.markdown(records))
        figures.save(self.figure(records), stem.with_name(f"{stem.name}.png"))

    def earlier(self, records: Sequence[Record], stem: Path) -> list[dict[str, Any]]:
        """Of a file that is there the tables that were not measured anew, if machine and versions are the same."""
        path, now = stem.with_name(f"{stem.name}.csv"), self.groups(records)
        if not (records and path.exists()):
            return []
        keys = {column.key for column in self.columns} | set(MACHINE)
        known = [own for own in read_csv(path) if keys <= set(own)]
        same = [own for own in known if all(own[key] == str(records[0][key]) for key in MACHINE)]
        return [own for own in same if self.title(own) not in now]

    def check_place(self, stem: Path) -> None:
        """Refuse to overwrite what is no such table; the .csv comes first, so the others belong to it.

        Raises: FileExistsError.
        """
        table, *others = (stem.with_name(f"{stem.name}{suffix}") for suffix in (".csv", ".md", ".png"))
        foreign = next((path for path in others if path.exists()), None)
        if table.exists():
            check_regular(table, MOST_TEXT)
            with table.open(newline="", encoding="utf-8", errors="replace") as file:
                header = set(next(csv.reader(file), []))
            known = {column.key for column in self.columns}
            foreign = table if len(known & header) < len(known) / 2 else None
        if foreign is not None:
            raise FileExistsError(
                f"--out: expected {foreign} to be new or such a table, got another file; choose another folder."
            )


def is_missing(value: Any) -> bool:
    """Whether a value was not measured, which a file has as an empty field."""
    return value is None or value == ""


def percent(value: Any, spread: Any = None, *, sign: str = "") -> str:
    """A share in percent, with its spread where there is one.

    Example:
        >>> percent(0.8304, 0.0041), percent(0.021, sign="+")
        ('83.0 ± 0.4', '+2.1')
    """
    text = f"{100 * float(value):{sign}.1f}"
    return text if is_missing(spread) else f"{text} ± {percent(spread)}"


def interval(low: Any, high: Any, *, sign: str = "") -> str:
    """An interval of shares in percent, such as "81.2 to 84.7"."""
    return f"{percent(low, sign=sign)} to {percent(high, sign=sign)}"


def _machine(record: Record) -> str:
    return (
        f"{record['machine']}, {record['threads']} threads, {record.get('device', 'cpu')}, float32, "
        f"torch {record['torch']}, Python {record['python']}."
    )
