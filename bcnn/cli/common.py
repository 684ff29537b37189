"""What several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

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


def make_console(*, show: bool = True) -> Console:
    """The terminal's own width, or 120 columns in a pipe; says nothing unless it is to show something."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, quiet=not show)


def print_broken(console: Console, broken: Mapping[str, str], total: int) -> None:
    """Say which images of so many were left out, if any."""
    if broken:
        from ..descriptors.folder import broken_images

        console.print(broken_images(broken, total), style="yellow", markup=False, soft_wrap=True)


def download_report() -> Callable[[str, int, int], None]:
    """Says once each what is being fetched."""
    from ..models.weights.fetch import announcer

    return announcer()


def device(text: str | None) -> str:
    """A device that is present; of None the usual one."""
    import torch

    from ..descriptors.team import default_device

    text = text or default_device()
    try:
        present = torch.empty(0, device=text).device.type != "meta"  # which has no numbers
    except (RuntimeError, AssertionError):
        present = False
    if not present:
        raise ValueError(f"--device: expected a device that is present, got {text!r}; use cpu.")
    return text
