"""What a benchmark is: settings, which are the options of its command, a run, and the layout of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from .. import machine
from ..progress import Progress, silent
from ..report.tables import Layout


def option(default: Any, about: str = "", *, quick: Any = ..., is_argument: bool = False) -> Any:
    """A field of a benchmark's settings.

    Args:
        default: its value, and that of the option. A tuple is given as text, separated by commas.
        about: the help of the command's option; a field without it is none.
        quick: the value with --quick, where it differs.
        is_argument: whether the command takes it without a flag.
    """
    quick = default if quick is ... else quick
    return field(default=default, metadata={"about": about, "quick": quick, "is_argument": is_argument})


@dataclass(frozen=True)
class Benchmark:
    """One command of `bcnn bench`.

    Attributes:
        settings: a dataclass whose fields are made by `option`.
        run: measures, and returns one record per row of the tables; fields that it leaves out are not known.
        layout: the columns of the records, and how they are shown.
        remarks: says, and does, what has to come before the first measurement.
    """

    settings: type[Any]
    run: Callable[[Any, Progress], list[dict[str, Any]]]
    layout: Layout
    remarks: Callable[[], Iterable[str]] = tuple

    def choose(self, *, quick: bool = False, **given: Any) -> Any:
        """Settings for a run that takes minutes, or seconds if `quick`, changed by what is given."""
        small = {own.name: own.metadata["quick"] for own in fields(self.settings)} if quick else {}
        return self.settings(**{**small, **given})

    def measure(self, settings: Any, progress: Progress = silent) -> list[dict[str, Any]]:
        """The records of a run, with the machine and the versions beside every one."""
        unknown = dict.fromkeys(column.key for column in self.layout.columns)
        about = machine.describe()
        return [{**unknown, **record, **about} for record in self.run(settings, progress)]
