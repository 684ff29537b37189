"""The `bcnn` command: parses, calls, prints; no decision is taken here. Heavy imports wait until a command runs."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer

from ..files import FULL
from . import (
    bench,
    compare,
    datasets,
    explain,
    export,
    invert,
    methods,
    predict,
    progress,
    reproduce,
    serve,
    share,
    train,
    weights,
)

ANYWHERE = {"--debug", "--quiet", "--verbose"}  # words that may stand before a command or after it
app = typer.Typer(
    help="Second-order (bilinear) pooling of CNN features: from a folder of images to a classifier.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("predict", no_args_is_help=True)(predict.predict)
app.command("evaluate", no_args_is_help=True)(predict.evaluate)
app.command("explain", no_args_is_help=True)(explain.explain)
app.command("serve", no_args_is_help=True)(serve.serve)
app.command("invert", no_args_is_help=True)(invert.invert)
app.command("export", no_args_is_help=True)(export.export)
app.command("push", no_args_is_help=True)(share.push)
app.command("pull", no_args_is_help=True)(share.pull)
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
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="If there is an error, write its traceback to a file. BCNN_DEBUG=1 does the same."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show only results and errors, no progress.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Progress in lines, one a minute, for files of what was said.")
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
    """Run the command; an error or warning is one line, not a traceback."""
    warnings.formatwarning = _as_line
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    said = ANYWHERE & set(words[:end])
    debug = "--debug" in said or os.environ.get("BCNN_DEBUG", "") not in ("", "0")
    try:
        progress.choose(quiet="--quiet" in said, verbose="--verbose" in said)
        with _ends_tidily():
            app(args=[word for i, word in enumerate(words) if i > end or word not in ANYWHERE])
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:
        line = f"{_in_words(error)} {_traced(error)}" if debug else _in_words(error)
        typer.secho(f"bcnn: {line}", fg=typer.colors.RED, err=True)
        raise SystemExit(2) from None
    finally:
        progress.choose(quiet=False, verbose=False)  # for the next one in the same process


@contextmanager
def _ends_tidily() -> Iterator[None]:
    """SIGTERM and a terminal that is closed end the command as Ctrl-C does: nothing is left half-written."""

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
        raise SystemExit(128 + number)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
        before = {number: signal.getsignal(number) for number in known}
        before = {number: usual for number, usual in before.items() if usual is signal.SIG_DFL}  # nohup ignores one
    try:
        for number in before:
            signal.signal(number, end)
        yield
    finally:
        for number in before:
            signal.signal(number, signal.SIG_DFL)


def _in_words(error: Exception) -> str:
    """An error in one line; what nobody has foreseen is called by its name."""
    text = " ".join(str(error).encode("utf-8", "backslashreplace").decode().splitlines())
    unsaid = isinstance(error, MemoryError) and not text
    if unsaid or re.search("(can't|unable to) allocate|out of memory", text, re.IGNORECASE):
        return "not enough memory; try a smaller --batch, --size or --proj-dim."
    if isinstance(error, OSError) and error.errno in FULL:
        where = f" for {error.filename}" if error.filename else ""
        return f"expected room on the disk{where}, got a full one; make room and give the same command again."
    if isinstance(error, RecursionError) and "decoding a JSON" in text:
        return "expected JSON, got lists of thousands of levels; the file is damaged."
    if text and isinstance(error, ValueError | TypeError | OSError | ImportError | ArithmeticError | MemoryError):
        return text
    return f"a fault in the program, {type(error).__name__}: {text}; the same command with --debug tells where."


def _traced(error: Exception) -> str:
    """Write the traceback to a file; returns where that is."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="bcnn-", suffix=".txt", delete=False, errors="replace") as file:
        traceback.print_exception(error, file=file)
    return f"(the traceback is in {file.name}.)"
