"""What several commands share."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from ..metrics import EvaluationMetrics, RunMetrics

Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON, under the names of metrics.json.")]


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


def print_json(runs: Sequence[tuple[Path, RunMetrics | EvaluationMetrics]], **more: Any) -> None:
    """Results for programs: under "runs", the metrics of every run, and its folder."""
    content = {"runs": [{"folder": str(folder), **metrics.to_json()} for folder, metrics in runs], **more}
    typer.echo(json.dumps(_finite(content), indent=1))


def _finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {name: _finite(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
