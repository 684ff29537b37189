"""`bcnn push` and `bcnn pull`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import make_console
from .predict import Run

Repo = Annotated[str, typer.Argument(help="The model on the Hugging Face Hub, as user/name.", metavar="USER/NAME")]


def push(
    run: Run,
    repo: Repo,
    private: Annotated[
        bool, typer.Option("--private", help="Make the model private if it is new, so that nobody else can see it.")
    ] = False,
    licence: Annotated[
        str, typer.Option(help="The licence on the card: an identifier of the Hub, such as mit.")
    ] = "other",
) -> None:
    """Send a trained classifier to the Hugging Face Hub, with a card that says how good it is.

    Only the model, its metrics, the card and checksums are sent: no images, no descriptors, no names of your folders.
    Log in first with `hf auth login`, or set HF_TOKEN.
    """
    from ..runs.share import push as work

    where = work(run, repo, private=private, licence=licence)
    make_console().print(f"Sent: {where}. Others get it with: bcnn pull {repo}", markup=False, soft_wrap=True)


def pull(
    repo: Repo,
    out: Annotated[Path | None, typer.Option(help="The run folder to make.", show_default="runs/NAME")] = None,
    revision: Annotated[
        str | None, typer.Option(help="A branch, a tag or a commit.", show_default="the newest")
    ] = None,
) -> None:
    """Get a classifier that was sent by `bcnn push` from the Hugging Face Hub, as a run folder.

    The files are checked: only tensors, nothing that could be executed, of bounded size, with the right checksums.
    """
    from ..runs.share import pull as work

    done = work(repo, out, revision=revision)
    good = "" if done.accuracy is None else f", accuracy {100 * done.accuracy:.1f} % by its author's test images"
    make_console().print(
        f"{done.num_classes} classes{good}. Written: {done.folder}; try: bcnn predict {done.folder} IMAGE",
        markup=False, soft_wrap=True,
    )  # fmt: skip
