"""What several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer
    from rich.console import Console


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was typed or stands in a YAML file, as against its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def is_typed(context: typer.Context, name: str) -> bool:
    """Whether it stands on the command line, as against a YAML file or its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def make_console() -> Console:
    """The terminal's own width, or 120 columns in a pipe."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120)


def quiet_console(show: bool) -> Any:
    """A console that says nothing in all processes but the first."""
    console = make_console()
    console.quiet = not show
    return console


def download_report() -> Callable[[str, int, int], None]:
    """Says once each what is being fetched."""
    from ..models.weights.fetch import announcer

    return announcer()


def names(option: str, text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise ValueError(f"{option}: expected names separated by commas, got {text!r}; see --help.")
    return parts


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers >= 1 separated by commas."""
    try:
        parsed = tuple(int(part) for part in names(option, text))
    except ValueError:
        parsed = ()
    if not parsed or min(parsed) < 1:
        raise ValueError(f"{option}: expected whole numbers >= 1 separated by commas, got {text!r}; try 64,512.")
    return parsed


def device(text: str | None) -> str:
    """A device that is present; of None the usual one."""
    import torch

    from ..features.team import default_device

    text = text or default_device()
    try:
        torch.empty(0, device=text)
    except (RuntimeError, AssertionError):
        raise ValueError(f"--device: expected a device that is present, got {text!r}; use cpu.") from None
    return text
