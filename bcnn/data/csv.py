"""A table of images: columns path, label and, if there is a split, split; commas, or tabs in a .tsv file."""

from __future__ import annotations

import csv as table
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..files import MOST_TEXT, at_home, check_regular
from .contract import SPLITS, TRAIN, Dataset, Sample, shown
from .folder import SEED, TEST_SHARE, split_classes
from .lists import malformed

LAYOUT = "a header path,label[,split] and a line an image; paths relative to the table, split is train or test"


def csv(path: Path, test_share: float | None = None, seed: int | None = None) -> Dataset:
    """The images of a table, in its order; classes sorted, as numbers if all of them are. Other columns are ignored.

    Without a column `split`, a share of every class becomes the test split (`split_by_stratum`).

    Raises: FileNotFoundError if there is no table, ValueError with the line that is malformed.
    """
    if not path.is_file():
        raise FileNotFoundError(f"csv: expected a table at {shown(str(path))}, got no file; the layout is: {LAYOUT}.")
    rows = list(_rows(path))
    labels = {label for _, label, _ in rows}
    numeric = all(label.isascii() and label.isdigit() for label in labels)
    classes = sorted(labels, key=lambda label: (int(label), label)) if numeric else sorted(labels)
    label_of = {name: label for label, name in enumerate(classes)}
    samples = tuple(
        Sample(name, label_of[label], split or TRAIN, path.parent / at_home(name)) for name, label, split in rows
    )
    dataset = Dataset("csv", tuple(classes), samples)
    if not rows or rows[0][2] is None:
        return replace(dataset, samples=split_classes(samples, test_share, seed))
    if test_share is not None or seed is not None:
        raise ValueError(
            f"csv: expected no test_share and seed (defaults {TEST_SHARE} and {SEED}) for a table that has a column "
            "`split`; leave them out."
        )
    return dataset


def _rows(path: Path) -> Iterator[tuple[str, str, str | None]]:
    """Name, label and split of every line; no split if the table has none."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    seen: dict[str, int] = {}
    check_regular(path, MOST_TEXT)
    with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
        lines = table.reader(file, delimiter=delimiter)
        try:
            header = [column.strip().lower() for column in next(lines, [])]
            for column in ("path", "label"):
                if column not in header:
                    raise malformed(path, 1, f"a header with path, label and maybe split ({LAYOUT})", header)
            for cells in lines:
                if not cells:
                    continue
                row = _row(path, lines.line_num, header, cells)
                if row[0] in seen:
                    raise malformed(path, lines.line_num, f"every path once (it is in line {seen[row[0]]})", row[0])
                seen[row[0]] = lines.line_num
                yield row
        except table.Error as error:
            raise malformed(path, lines.line_num, "a table", str(error)) from None


def _row(path: Path, number: int, header: list[str], cells: list[str]) -> tuple[str, str, str | None]:
    if len(cells) != len(header):
        raise malformed(path, number, f"{len(header)} cells as in the header", cells)
    row = dict(zip(header, cells, strict=True))
    name, label = row["path"], row["label"].strip()
    if not name.strip() or not label:
        raise malformed(path, number, "a path and a label", cells)
    if "split" not in row:
        return name, label, None
    split = row["split"].strip().lower()
    if split not in SPLITS:
        raise malformed(path, number, "train or test in the column split", row["split"])
    return name, label, split
