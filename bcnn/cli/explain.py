"""`bcnn explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .common import device as check_device
from .common import make_console
from .options import with_options
from .predict import WORK, Run, names_from_stdin
from .progress import progress_bars

Data = Annotated[
    str | None, typer.Option("--data", help="Where the dataset of the run is now.", show_default="where it was")
]


@with_options(WORK, config=True)
def explain(
    run: Run,
    images: Annotated[
        list[str], typer.Argument(help="Files and folders; - reads names from standard input.", metavar="IMAGES...")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--class",
            help="The class to explain; a part of its name will do if no other has it.",
            show_default="the one that is predicted",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for the pictures.", show_default="explanations in RUN")
    ] = None,
    data: Data = None,
    describe: Annotated[
        bool,
        typer.Option(
            "--describe",
            help="Describe the training photographs again if their descriptors are gone, as after fine-tuning.",
        ),
    ] = False,
    **options: Any,
) -> None:
    """Show which regions of a photograph decided for a class, and which training photographs spoke for it.

    Writes one picture per image: the photograph, its regions in colour, and the training photographs with the largest
    shares of the score. An image that cannot be read is named on the error stream, and the exit code is 1 then.
    """
    from ..data.contract import shown
    from ..runs import explain as work
    from ..runs.neighbours import Neighbours, describe_again
    from ..runs.predict import find_images, open_run

    recognizer = open_run(run, **{**options, "device": check_device(options["device"])})
    neighbours = Neighbours(run, recognizer, data)
    if describe and neighbours.why_no_shares:
        with progress_bars() as progress:
            describe_again(run, recognizer, data, progress)
        neighbours = Neighbours(run, recognizer, data)
    place = out or (run if run.is_dir() else run.parent) / "explanations"
    if out is None and place.is_symlink():
        raise ValueError(f"explain: expected no link at {place}, got one, which leads elsewhere; say where by --out.")
    paths = find_images(names_from_stdin(images))
    console, num_broken = make_console(), 0
    with progress_bars(show=len(paths) > options["batch"]) as progress:
        for done in work.explain(recognizer, paths, place, name=name, neighbours=neighbours, progress=progress):
            if isinstance(done, OSError):
                num_broken += 1
                typer.secho(f"bcnn: {shown(str(done))}", fg=typer.colors.YELLOW, err=True)
                continue
            said, share = done.prediction.top[0]
            console.print(
                f"{shown(done.prediction.name)}: {shown(said)}, {100 * share:.1f} %; explained: {shown(done.name)}. "
                f"Written: {shown(str(done.path))}",
                markup=False, soft_wrap=True, highlight=False,
            )  # fmt: skip
    for why in dict.fromkeys(filter(None, (neighbours.why_no_shares, neighbours.why_no_photographs))):
        typer.secho(f"bcnn: {why}", fg=typer.colors.YELLOW, err=True)
    if num_broken:
        typer.secho(f"bcnn: {num_broken} of {len(paths)} images could not be read.", fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(1)
