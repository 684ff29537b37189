"""What the paper prints, from the CSV files beside this module: transcribed, nothing computed.

Of gradients the paper prints no numbers; those are of the authors' repository, and say so.
"""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files


@lru_cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """The lines of ``paper/<name>.csv``."""
    text = (files(__package__) / "paper" / f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def printed(name: str, of: str, **where: str) -> float | None:
    """The number in column `of` of the line that fits, as the paper prints it; None where it prints none.

    Example:
        >>> printed("table1_normalization", "cub", network="vgg16", normalization="sgnsqrt")
        80.1
        >>> printed("table1_normalization", "cub", network="alexnet", normalization="sgnsqrt") is None
        True
    """
    for line in table(name):
        if all(line[key] == value for key, value in where.items()) and line.get(of):
            return float(line[of])
    return None


def dataset_title(dataset: str) -> str:
    """The dataset as the paper calls it; its own name where the paper does not have it."""
    return next((line["title"] for line in table("datasets") if line["dataset"] == dataset), dataset)


def network_title(network: str) -> str:
    """The network as the paper calls it, with our name; our name alone where the paper does not have it."""
    return next((f"{line['title']} ({network})" for line in table("networks") if line["network"] == network), network)
