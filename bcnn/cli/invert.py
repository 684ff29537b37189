"""`bcnn invert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..options import pick
from ..runs.config import RunConfig
from .common import device as check_device
from .common import make_console
from .options import with_options
from .predict import Run
from .progress import progress_bars


@with_options(pick(RunConfig, "seed", "device"), config=True)
def invert(
    run: Run,
    name: Annotated[
        str | None, typer.Option("--class", help="The class; a part of its name will do if no other has it.")
    ] = None,
    image: Annotated[
        Path | None, typer.Option(help="A photograph instead of a class: its texture is made anew.")
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Layers whose statistics the picture shares with the photograph, separated by commas; descriptor for "
            "what the head makes of the last one.",
            show_default="the last one of every resolution",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The PNG file, or a folder for it.", show_default="in RUN")] = None,
    size: Annotated[
        int | None, typer.Option(min=32, help="The side of the picture in pixels.", show_default="at most 224")
    ] = None,
    prior: Annotated[
        float | None,
        typer.Option(min=0, help="How smooth the picture is.", show_default="1000 for a class, 0.3 for a photograph"),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="The number of steps of L-BFGS.")] = 200,
    **options: Any,
) -> None:
    """Make a picture of what a class looks like to a network, or of the texture of a photograph.

    It begins with noise and changes it until the network is sure that it sees the class, or until the statistics of its
    features are those of the photograph. Another --seed gives another picture. It takes a minute or a few.
    """
    from ..data.contract import shown
    from ..runs.invert import invert as work
    from ..runs.predict import open_run

    recognizer = open_run(run, device=check_device(options["device"]))
    place = out or (run if run.is_dir() else run.parent)
    chosen = None if layers is None else tuple(one.strip() for one in layers.split(","))
    with progress_bars() as progress:
        done = work(
            recognizer, place, name=name, image=image, layers=chosen,
            size=size, prior=prior, steps=steps, seed=options["seed"], progress=progress,
        )  # fmt: skip
    said, probability = done.said.top[0]
    make_console().print(
        f"loss {done.first_loss:.4g} at the start, {done.loss:.4g} now. The network says {shown(said)}, with "
        f"probability {100 * probability:.1f} %. Written: {shown(str(done.path))}",
        markup=False, soft_wrap=True,
    )  # fmt: skip
