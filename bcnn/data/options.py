"""From the text of an option to its value; what was expected is in the error, who asked is added by `load_dataset`."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import unknown_name


def whole(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """A whole number within bounds."""
    wanted = f"a whole number >= {minimum}" if maximum is None else f"a whole number from {minimum} to {maximum}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum or (maximum is not None and value > maximum):
            raise ValueError(f"expected {wanted}, got {text!r}.")
        return value

    return parse


def share(text: str) -> float:
    """A number between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise ValueError(f"expected a number between 0 and 1, got {text!r}.")
    return value


def one_of(what: str, *names: str) -> Callable[[str], str]:
    """One of the names."""

    def parse(text: str) -> str:
        if text not in names:
            raise unknown_name("expected one of the names", what, text, names)
        return text

    return parse
