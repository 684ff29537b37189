"""`bcnn bench`: one command per benchmark, with the options that its settings declare."""

from __future__ import annotations

from dataclasses import Field, fields
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..bench import BENCHMARKS, load
from .common import device, make_console, names, numbers
from .progress import progress_bars

Quick = Annotated[bool, typer.Option("--quick", help="Small sizes: seconds rather than minutes.")]
Out = Annotated[Path, typer.Option(help="Folder for the CSV file, the Markdown tables and the plot.")]


class _Commands(TyperGroup):
    """The help lists all commands; only the one that is called is made in full, since that imports torch."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, _command(str(name)), rest


app = typer.Typer(cls=_Commands, help="Measure time and precision on this machine.", no_args_is_help=True)
for _name, _about in BENCHMARKS.items():
    app.command(_name, help=_about)(lambda: None)


def _command(name: str) -> Any:
    """The command of one benchmark, made from the fields of its settings."""
    benchmark = load(name)
    options = {own.name: own for own in fields(benchmark.settings) if own.metadata["about"]}

    def command(*, quick: bool, out: Path, **given: Any) -> None:
        chosen = {key: _parsed(options[key], text) for key, text in given.items() if text is not None}
        _measure(name, benchmark.choose(quick=quick, **chosen), out)

    parameters = [
        *map(_parameter, options.values()),
        Parameter("quick", Parameter.KEYWORD_ONLY, default=False, annotation=Quick),
        Parameter("out", Parameter.KEYWORD_ONLY, default=Path("runs/bench"), annotation=Out),
    ]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {own.name: own.annotation for own in parameters}
    alone = typer.Typer(add_completion=False)
    alone.command(name, help=BENCHMARKS[name])(command)
    return typer.main.get_command(alone)


def _flag(option: Field[Any]) -> str:
    return "--" + option.name.removeprefix("num_")


def _parameter(option: Field[Any]) -> Parameter:
    """The option of a command; it has no value of its own, since that depends on --quick."""
    about, default = option.metadata["about"], option.default
    shown = (",".join(map(str, default)) or "all") if isinstance(default, tuple) else str(default or "none")
    if option.metadata["is_argument"]:
        how = typer.Argument(help=about, show_default=shown, metavar=f"[{option.name.upper()}]")
    else:
        is_count = isinstance(default, int)
        how = typer.Option(_flag(option), help=about, show_default=shown, min=1 if is_count else None)
    kind = int | None if isinstance(default, int) else str | None
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, how])


def _parsed(option: Field[Any], text: Any) -> Any:
    """What was typed, as the settings want it."""
    if isinstance(option.default, tuple):
        is_numbers = option.default and isinstance(option.default[0], int)
        return numbers(_flag(option), text) if is_numbers else names(_flag(option), text)
    if option.name == "weights" and text == "none":
        return None
    return device(text) if option.name == "device" else text


def _measure(name: str, settings: Any, out: Path) -> None:
    """Run with progress bars, print the table, write CSV, Markdown and plot."""
    from .. import machine

    benchmark = load(name)
    out.mkdir(parents=True, exist_ok=True)  # fails now rather than after the work
    console = make_console()
    for remark in benchmark.remarks():
        console.print(remark, markup=False, soft_wrap=True)
    with progress_bars() as progress:
        records = benchmark.measure(settings, progress)
    console.print(benchmark.layout.terminal(records))
    stem = out / f"{name}_{machine.slug()}"
    benchmark.layout.write(records, stem)
    console.print(f"Written: {stem}.csv, .md, .png", soft_wrap=True)
