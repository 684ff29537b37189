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


def percent(share: float) -> str:
    """A probability as a reader wants it.

    Example:
        >>> percent(0.254), percent(0.0313), percent(0.0001)
        ('25 %', '3.1 %', 'below 0.1 %')
    """
    if share < 0.001:
        return "below 0.1 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"


def write_table(found: Sequence[Contradicted], path: Path) -> None:
    """One line per image; the one whose label is least probable comes first."""
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
        f"{len(found)} of {num_images} training images look more like another class than like their label.",
        "Each was scored by classifiers that had not seen it. Those whose label is least probable, compared with "
        "other images of its class, come first. Look at them yourself before you change anything: a classifier that "
        f"is right on {100 * accuracy:.1f} % of the images is often wrong.",
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
        note=f"looks like {instead} ({percent(one.probability)}; its label: {percent(one.own)}). "
        f"{shown(one.sample.name)}",
        kind="image/jpeg",
    )
