"""`bcnn export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import make_console
from .predict import Run
from .progress import progress_bars


def export(
    run: Run,
    to: Annotated[
        str, typer.Option(help="onnx, for onnxruntime and others, or torch, for torch.export.load.")
    ] = "onnx",
    out: Annotated[Path | None, typer.Option(help="The file.", show_default="model.onnx or model.pt2 in RUN")] = None,
    images: Annotated[
        str | None,
        typer.Option(help="Photographs to measure on: a folder, or a dataset.", show_default="the dataset of the run"),
    ] = None,
    num_images: Annotated[int, typer.Option(min=1, help="How many of them.")] = 200,
    fixed_size: Annotated[
        bool,
        typer.Option(
            "--fixed-size", help="Accept only images of the run's size, even if the network could take others."
        ),
    ] = False,
) -> None:
    """Write a trained classifier as one file from pixels to probabilities, which runs without bcnn.

    The file takes RGB images in [0, 1] and gives calibrated probabilities; class names and the preparation of images
    are inside. The command also measures, and prints, how far the file agrees with the run on photographs.
    """
    from ..runs.export import export as work
    from ..runs.predict import open_run

    recognizer = open_run(run)
    with progress_bars() as progress:
        done = work(
            recognizer, run, to, out, images=images, num_images=num_images, any_size=not fixed_size, progress=progress
        )
    console, size = make_console(), recognizer.model.preprocessing.size
    takes = f"any number of {size} x {size} images" + (", or of other sizes" if done.any_size else "")
    console.print(
        f"Written: {done.path} ({done.size / 1e6:.1f} MB), which takes {takes}.", markup=False, soft_wrap=True
    )
    for function in done.functions:
        console.print(f"Matrix function: {function}.", markup=False, soft_wrap=True)
    measured = done.agreement
    if measured is None or not measured.num_images:
        why = done.why_not or "none of the images could be read"
        console.print(f"Not measured: {why}; pass --images.", style="yellow", markup=False, soft_wrap=True)
        return
    console.print(
        f"On {measured.num_images} images: the same best class on {measured.num_same} "
        f"({100 * measured.num_same / measured.num_images:.1f} %), probabilities differ by {measured.largest:.1e} at "
        f"most.", markup=False, soft_wrap=True,
    )  # fmt: skip
    if measured.num_broken:
        console.print(f"{measured.num_broken} images could not be read.", style="yellow")
