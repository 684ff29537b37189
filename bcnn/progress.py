"""How work that takes long says how far it is: one call, from the innermost loop up to the progress bar."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Hears how far a stage of the work is; stages are told apart by their names."""

    def __call__(self, stage: str, done: int, total: int, note: str = "") -> None:
        """So much of the stage is done, of so much in all; the note is whatever else there is to say."""
        ...


def silent(stage: str, done: int, total: int, note: str = "") -> None:
    """A progress that shows nothing."""


def within(progress: Progress, whole: str) -> Progress:
    """The same for work that is a part of something larger: the stages bear the name of the whole in front.

    Example:
        >>> within(lambda stage, done, total, note="": print(f"{stage}, {done} of {total}"), "bcnn: ")("gram", 3, 8)
        bcnn: gram, 3 of 8
    """
    return lambda stage, done, total, note="": progress(f"{whole}{stage}", done, total, note)
