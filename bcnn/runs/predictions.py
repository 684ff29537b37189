"""What a network says of images: classes with probabilities, as records and as a file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor

from ..data.contract import shown
from ..metrics import Prediction

TOP = 5
FORMS = ("csv", "json", "jsonl")  # of files and of standard output


def predictions_of(
    logits: Tensor, names: Sequence[str], classes: Sequence[str], labels: Tensor | None = None, *, top: int = TOP
) -> list[Prediction]:
    """From logits, scores divided by the temperature, shape (images, classes); the `top` most probable classes."""
    if not len(names):
        return []
    probabilities, order = logits.double().softmax(-1).topk(min(top, len(classes)), -1)
    truths = [None] * len(names) if labels is None else [classes[i] for i in labels.tolist()]
    return [
        Prediction(name, tuple((classes[i], p) for i, p in zip(best, shares, strict=True)), truth)
        for name, best, shares, truth in zip(names, order.tolist(), probabilities.tolist(), truths, strict=True)
    ]


def to_record(prediction: Prediction) -> dict[str, Any]:
    """A prediction as JSON."""
    record: dict[str, Any] = {"image": text_of(prediction.name)}
    if prediction.truth is not None:
        record["truth"] = prediction.truth
    record["top"] = [{"class": name, "probability": p} for name, p in prediction.top]
    return record


def to_csv(predictions: Sequence[Prediction], *, top: int = TOP) -> str:
    """One line per image: name, truth if known, then classes and probabilities."""
    known = any(prediction.truth is not None for prediction in predictions)
    top = max((min(top, len(prediction.top)) for prediction in predictions), default=0)
    return "".join(_csv_lines(predictions, top=top, known=known))


def to_lines(predictions: Iterable[Prediction], form: str, *, top: int) -> Iterator[str]:
    """The text of a file of predictions without truth, as they come.

    Args:
        predictions: with `top` classes each.
        form: one of `FORMS`.
        top: how many.
    """
    if form == "csv":
        yield from _csv_lines(predictions, top=top, known=False)
    elif form == "jsonl":
        yield from (f"{json.dumps(to_record(prediction))}\n" for prediction in predictions)
    else:
        before = "[\n"
        for prediction in predictions:
            yield before + json.dumps(to_record(prediction), indent=1)
            before = ",\n"
        yield "\n]\n" if before == ",\n" else "[]\n"


def _csv_lines(predictions: Iterable[Prediction], *, top: int, known: bool) -> Iterator[str]:
    columns = [f"{what}{i + 1}" for i in range(top) for what in ("class", "probability")]
    yield _csv_line(["image", *(["truth"] if known else []), *columns])
    for prediction in predictions:
        values = [value for name, p in prediction.top[:top] for value in (cell(name), f"{p:.6f}")]
        yield _csv_line([cell(prediction.name), *([cell(prediction.truth or "")] if known else []), *values])


def _csv_line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def cell(name: str) -> str:
    """A name as the cell of a table: on one line, and never a formula, which spreadsheets would compute.

    What begins like a formula gets an apostrophe in front, as spreadsheets themselves write text.
    """
    name = shown(name)
    return f"'{name}" if name.startswith(("=", "+", "-", "@")) else name


def uncell(text: str) -> str:
    """The name in the cell of a table, as `cell` wrote it.

    Example:
        >>> uncell(cell("-5 degrees")), uncell(cell("gull"))
        ('-5 degrees', 'gull')
    """
    return text[1:] if text.startswith(("'=", "'+", "'-", "'@")) else text


def text_of(name: str) -> str:
    """A name as it is, for other programs, if it is text at all."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return shown(name)
    return name
