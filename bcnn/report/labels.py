"""Labels that are contradicted, as a page of photographs and as a table."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..data.contract import Sample, shown
from ..files import write_csv
from .document import Document, Gallery, Picture, Section
from .page import write_page

SIDE, QUALITY = 240, 80  # of thumbnails
MOST = 400  # photographs on a page; the table has all


@dataclass(frozen=True)
class Contradicted:
    """An image with its label, and what it looks like instead."""

    sample: Sample
    label: str
    instead: str
    probability: float  # that it is of the other class
    own: float  # that it is what its label says


def write_table(found: Sequence[Contradicted], path: Path) -> None:
    """One line per image, the surest contradiction first."""
    empty = {"image": "", "label": "", "looks_like": "", "probability": "", "probability_of_label": ""}
    rows = [
        {
            "image": shown(one.sample.name), "label": shown(one.label), "looks_like": shown(one.instead),
            "probability": f"{one.probability:.4f}", "probability_of_label": f"{one.own:.4f}",
        }
        for one in found
    ]  # fmt: skip
    if rows:
        write_csv(path, rows)
    else:
        path.write_text(",".join(empty) + "\n", encoding="utf-8")


def write_photographs(
    found: Sequence[Contradicted], path: Path, *, dataset: str, num_images: int, accuracy: float
) -> None:
    """The same as a page of thumbnails, which needs no other file."""
    pictures = tuple(picture for one in found[:MOST] if (picture := _picture(one)) is not None)
    lead = (
        f"{len(found)} of {num_images} training images look like another class than their label says.",
        "Each was scored by classifiers that had not seen it. Those whose label is least probable for its class come "
        "first. Look at them yourself before you change anything: a classifier that is right on "
        f"{100 * accuracy:.1f} % of the images is often wrong.",
    )
    sections = (Section("Photographs", "photographs", blocks=(Gallery("Photographs", pictures),)),) if pictures else ()
    write_page(Document(f"Suspicious labels: {shown(dataset)}", lead, sections), path)


def _picture(one: Contradicted) -> Picture | None:
    """A thumbnail as JPEG; None for an image that can no longer be read."""
    try:
        image = one.sample.open()
    except OSError:
        return None
    image.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=QUALITY)
    label, instead = shown(one.label), shown(one.instead)
    return Picture(
        title=f"labelled {label}",
        content=buffer.getvalue(),
        alt=f"{shown(one.sample.name)}, labelled {label}",
        note=f"looks like {instead}, {100 * one.probability:.0f} % to {100 * one.own:.0f} %; {shown(one.sample.name)}",
        kind="image/jpeg",
    )
