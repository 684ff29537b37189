"""Options that several commands share, and those from a YAML file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .common import make_console

Spec = Annotated[str, typer.Argument(help="The dataset: a folder, or see `bcnn datasets list`.", metavar="SPEC")]
Preset = Annotated[
    str, typer.Option(help="Of average, bcnn, improved_bcnn, o2p; several, separated by commas, share the network.")
]
Backbone = Annotated[str, typer.Option(help="The network; see docs/models.md, or timm/<model>.")]
WeightsName = Annotated[
    str,
    typer.Option(help="default, none for random ones, a name of `bcnn weights list`, or a .safetensors file of a run."),
]
Layer = Annotated[str | None, typer.Option(help="Where to cut the network.", show_default="the usual place")]
Size = Annotated[int | None, typer.Option(min=1, help="Side of the images in pixels.", show_default="448")]
Eps = Annotated[
    float | None, typer.Option(min=0.0, help="The ridge, in units of --eps-scale.", show_default="the preset's")
]
EpsScale = Annotated[
    str | None,
    typer.Option(
        help="Unit of the ridge: trace, largest (eigenvalue; the paper's ridge is --eps 1e-6 of it) or absolute.",
        show_default="trace",
    ),
]
Normalize = Annotated[
    list[str] | None,
    typer.Option(help="A normalization, such as 'matrix_power(0.3)'; again for the next.", show_default="the preset's"),
]
Forward = Annotated[
    str | None, typer.Option(help="How the matrix function is computed; see `bcnn methods`.", show_default="the best")
]
Backward = Annotated[
    str | None,
    typer.Option(
        help="Its gradient: lyapunov, loewner, svd, svd_truncated, unrolled, identity; see `bcnn methods`.",
        show_default="lyapunov, or loewner",
    ),
]
NumIters = Annotated[int | None, typer.Option(min=1, help="Steps of an iterative method.", show_default="the method's")]
ProjDim = Annotated[
    int | None, typer.Option(min=1, help="Reduce the channels to so many, at random.", show_default="all are kept")
]
Flips = Annotated[bool, typer.Option(help="Take the mirrored image, too.")]
Precision = Annotated[str, typer.Option(help="Of the network: float32 or bf16.")]
Batch = Annotated[int, typer.Option(min=1, help="Images at a time.")]
Workers = Annotated[int, typer.Option(min=1, help="Threads that decode images.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at an image that cannot be read.")]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda (untested).", show_default="a GPU if there is one, else cpu")
]
Seed = Annotated[int, typer.Option(min=0, help="Of random weights, and of the folds for calibration.")]


def _load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Let a YAML file give the defaults; what stands on the command line goes first."""
    if path is None or context.resilient_parsing:
        return path
    from ..errors import unknown_name
    from ..runs.config import read

    known: dict[str, Any] = {}
    for own in context.command.params:
        if own.name not in ("config", "help"):
            known |= {word.lstrip("-").replace("-", "_").lower(): own for word in own.opts}
    defaults: dict[str, Any] = {}
    for name, value in read(path).items():
        parameter = known.get(name.lower().replace("-", "_"))
        if parameter is None:
            raise unknown_name(str(path), "option", name, known)
        several = parameter.nargs == -1 or getattr(parameter, "multiple", False)
        is_flag = getattr(parameter, "is_flag", False)
        if (isinstance(value, bool) and not is_flag) or (isinstance(value, list) and not several and name != "preset"):
            raise ValueError(f"{path}: expected a single number or text for {name}, got {value!r}.")
        if several and not isinstance(value, list):
            value = [value]
        elif isinstance(value, list) and not several:
            value = ",".join(map(str, value))
        defaults[str(parameter.name)] = value
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config", callback=_load_config, is_eager=True, exists=True, dir_okay=False,
        help="A YAML file with any of these options; those given here go first.",
    ),
]  # fmt: skip


def download_report() -> Callable[[str, int, int], None]:
    """Says once each what is being fetched."""
    from ..models.weights.fetch import announcer

    return announcer()


def quiet_console(show: bool) -> Any:
    """A console that says nothing in all processes but the first."""
    console = make_console()
    console.quiet = not show
    return console
