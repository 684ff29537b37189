"""The `bcnn` command: parses, calls, prints; no decision is taken here. Heavy imports wait until a command runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Second-order (bilinear) pooling of CNN features: matrix functions, benchmarks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure time and precision on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")


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


@app.command()
def methods() -> None:
    """List the matrix functions, forward algorithms and gradient rules, and which of them go together."""
    from rich.console import Console
    from rich.table import Table

    from .matfun.backward import BACKWARDS
    from .matfun.forward import FORWARDS
    from .matfun.functions import FUNCTIONS
    from .matfun.plan import INTERNAL_OPTIONS, available_pairs, resolve_auto

    console = Console(width=None if sys.stdout.isatty() else 120)
    for function in FUNCTIONS:
        pairs = available_pairs(function)
        table = Table(title=f"{function}: forward (down) x backward (across)", title_justify="left")
        backwards = [name for name in BACKWARDS if any(b == name for _, b in pairs)]
        table.add_column("forward")
        for name in backwards:
            table.add_column(name, justify="center")
        default = resolve_auto(function, "cpu", 512)
        for forward in FORWARDS:
            if any(f == forward for f, _ in pairs):
                chosen = {b: "auto" if (forward, b) == default else "yes" for f, b in pairs if f == forward}
                table.add_row(forward, *(chosen.get(b, "") for b in backwards))
        console.print(table)
    table = Table(title="options, beside forward=, backward=, check=, return_info=", title_justify="left")
    table.add_column("method")
    table.add_column("options")
    for kind, registry in (("forward", FORWARDS), ("backward", BACKWARDS)):
        for name, method in registry.items():
            options = sorted(method.options - INTERNAL_OPTIONS)
            table.add_row(f"{kind} {name}", ", ".join(options))
    console.print(table)


@bench.command("matfun")
def bench_matfun(
    dims: Annotated[str | None, typer.Option(help="Matrix sizes d, separated by commas.  [default: 512]")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Matrices a batch.  [default: 8]")] = None,
    regime: Annotated[str, typer.Option(help="Of paper, rank_deficient, flat; separated by commas.")] = (
        "paper,rank_deficient,flat"
    ),
    function: Annotated[str, typer.Option(help="Of sqrt, log, power; separated by commas.")] = "sqrt,log,power",
    device: Annotated[str, typer.Option(help="cpu or cuda (untested).")] = "cpu",
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Timed rounds; every method once a round.  [default: 7]")
    ] = None,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves the default.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Defaults of d=128, batch 4, 3 rounds: seconds.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the CSV file, the Markdown tables and the plot.")] = Path(
        "runs/bench"
    ),
) -> None:
    """Time and precision of matrix functions and their gradients, as ratios to torch.linalg.eigh + autograd."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from . import files
    from .bench import machine
    from .bench import matfun as measure
    from .report import matfun as report

    out.mkdir(parents=True, exist_ok=True)  # fails now rather than after the work
    default_dims, default_batch, default_rounds = ("128", 4, 3) if quick else ("512", 8, 7)
    if threads:
        torch.set_num_threads(threads)
    console = Console(width=None if sys.stdout.isatty() else 120)
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    )
    tasks: dict[str, int] = {}

    def tick(label: str, total: int) -> None:
        if label not in tasks:
            tasks[label] = progress.add_task(label, total=total)
        progress.advance(tasks[label])  # type: ignore[arg-type]

    with progress:
        rows = measure.run(
            dims=_numbers("--dims", dims or default_dims),
            batch=batch or default_batch,
            regimes=_names("--regime", regime),
            functions=_names("--function", function),
            device=_device(device),
            rounds=rounds or default_rounds,
            tick=tick,
        )
    records = measure.to_records(rows)
    console.print(report.terminal_table(records))
    stem = out / f"matfun_{machine.slug()}"
    files.write_csv(stem.with_name(stem.name + ".csv"), records)
    with files.written_whole(stem.with_name(stem.name + ".md")) as path:
        path.write_text(report.markdown(records))
    report.plot(records, stem.with_name(stem.name + ".png"))
    console.print(f"Written: {stem}.csv, .md, .png", soft_wrap=True)


def _names(option: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError(f"{option}: expected names separated by commas, got {text!r}; see --help.")
    return names


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in _names(option, text))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise ValueError(f"{option}: expected whole numbers >= 1 separated by commas, got {text!r}; try 64,512.")
    return numbers


def _device(text: str) -> str:
    import torch

    try:
        torch.empty(0, device=text)
    except (RuntimeError, AssertionError):
        raise ValueError(f"--device: expected a device that is present, got {text!r}; use cpu.") from None
    return text


def main() -> None:
    """Run the command; an error of ours is one line, not a traceback."""
    try:
        app()
    except (ValueError, TypeError, OSError) as error:
        typer.secho(f"bcnn: {error}", fg=typer.colors.RED, err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
