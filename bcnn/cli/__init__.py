"""The `bcnn` command: parses, calls, prints; no decision is taken here. Heavy imports wait until a command runs."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from . import bench, compare, datasets, invert, methods, predict, reproduce, train, weights

app = typer.Typer(
    help="Second-order (bilinear) pooling of CNN features: from a folder of images to a classifier.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("train")(train.train)
app.command("predict", no_args_is_help=True)(predict.predict)
app.command("evaluate", no_args_is_help=True)(predict.evaluate)
app.command("invert", no_args_is_help=True)(invert.invert)
app.command("compare", no_args_is_help=True)(compare.compare)
app.command("reproduce", no_args_is_help=True)(reproduce.reproduce)
app.command("report", no_args_is_help=True)(reproduce.report)
app.command("extract")(train.extract)
app.command("methods")(methods.methods)
app.add_typer(datasets.app, name="datasets")
app.add_typer(weights.app, name="weights")
app.add_typer(bench.app, name="bench")


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"bcnn {version('bcnn')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def _as_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of ours without the place in the code that gave it."""
    if category.__module__ == "bcnn.errors":
        return f"bcnn: {message}\n"
    return _format_warning(message, category, filename, lineno, line)


_format_warning = warnings.formatwarning


def main() -> None:
    """Run the command; an error or warning of ours is one line, not a traceback."""
    warnings.formatwarning = _as_line
    try:
        app()
    except (ValueError, TypeError, OSError, ImportError, ArithmeticError, MemoryError) as error:
        said = str(error).encode("utf-8", "backslashreplace").decode() or "not enough memory; try a smaller --batch"
        typer.secho(f"bcnn: {said}", fg=typer.colors.RED, err=True)
        raise SystemExit(2) from None
