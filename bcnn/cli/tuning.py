"""The options of `bcnn train --finetune`, and its run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..train.config import FinetuneConfig
from . import options as o
from .common import is_given, is_typed
from .progress import progress_bars

DEFAULT = FinetuneConfig()
PANEL = "Fine-tuning (with --finetune)"
_HOW = "Fine-tuning: means"


def _option(*words: str, panel: str = PANEL, **options: Any) -> Any:
    return typer.Option(*words, rich_help_panel=panel, **options)


Finetune = Annotated[bool, _option("--finetune", help="Train the whole network first: the paper's Sec. 3.4.")]
Resume = Annotated[bool, _option(help="Go on where an earlier session ended; --no-resume begins the training anew.")]
Recipe = Annotated[
    str | None,
    _option(
        help="All of these at once: ours, or paper, the authors' own (docs/finetuning.md); what is given goes first.",
        show_default="ours",
    ),
]
Epochs = Annotated[int, _option(min=1, help="Times through the training images; the paper: 50 to 100.")]
Lr = Annotated[float, _option(help="Learning rate; 0.001 is the paper's.")]
Momentum = Annotated[float, _option(help="Of the gradient descent.")]
WeightDecay = Annotated[float, _option(help="Pull of all weights to zero.")]
BatchSize = Annotated[int, _option(min=1, help="Images per step, over all processes; --batch of them at a time.")]
Schedule = Annotated[str, _option(help="Of the learning rate: constant (the paper's), cosine, step.")]
WarmupEpochs = Annotated[float, _option(help="Raise the learning rate from 0 over so many epochs.")]
StepEpochs = Annotated[int, _option(min=1, help="Schedule step: every so many epochs ...")]
StepFactor = Annotated[float, _option(help="... times this.")]
Clip = Annotated[float | None, _option(help="Shorten longer gradients to this.", show_default="no")]
LrScale = Annotated[
    list[str] | None, _option(help="Relative rate of a part, such as classifier=10 or conv1=0.1; again for others.")
]
DecayScale = Annotated[
    list[str] | None, _option(help="Relative weight decay of a part, such as classifier=0; again for others.")
]
FreezeUntil = Annotated[
    str | None, _option(help="Leave all layers alone up to this one, such as conv5.", show_default="train all")
]
ValShare = Annotated[
    float, _option(help="Share of the training images to choose the epoch on; 0: the last epoch, trained on all.")
]
SelectOn = Annotated[
    str,
    _option(help="Choose the epoch on validation or, ONLY to compare with published numbers, on test; says so."),
]
SelectBy = Annotated[str, _option(help="Choose it by loss or accuracy.")]
InitC = Annotated[float, _option("--init-C", help="C of the logistic regression that the last layer starts from.")]
OnNonfinite = Annotated[str, _option(help="At a loss or gradient that is not finite: stop, or skip the step.")]
CheckpointMinutes = Annotated[
    float, _option(panel=_HOW, help="Save after so many minutes, besides the end of every epoch.")
]
CheckpointActivations = Annotated[
    bool, _option("--checkpoint-activations", panel=_HOW, help="Compute outputs again to save memory.")
]
Compile = Annotated[
    bool, _option("--compile", panel=_HOW, help="Compile the network (torch.compile; wants a compiler).")
]
CacheFrozen = Annotated[bool, _option(panel=_HOW, help="Store the output of frozen layers once, not compute it again.")]
MemoryGb = Annotated[float, _option(panel=_HOW, help="For decoded images, in every process.")]
Devices = Annotated[int, _option(min=1, panel=_HOW, help="Processes or GPUs on each machine; torchrun goes first.")]
Nodes = Annotated[int, _option(min=1, panel=_HOW, help="Machines.")]


def as_given(values: dict[str, Any], context: typer.Context) -> dict[str, Any]:
    """Options of fine-tuning only where they were given: a recipe has its own, and a run without it refuses them."""
    from ..runs.config import FINETUNE_FIELDS
    from ..train.recipes import with_recipe

    given = {name for name in (*values, "resume") if is_given(context, name)}
    if is_typed(context, "recipe"):  # a recipe that is typed goes before the numbers of a YAML file
        set_by_recipe = with_recipe(values["recipe"], {})
        given -= {name for name in set_by_recipe if not is_typed(context, name)}
    if "resume" in given and not values["finetune"]:
        raise ValueError("train: expected finetune with resume, got a run without fine-tuning, which always goes on.")
    return {name: value for name, value in values.items() if name not in FINETUNE_FIELDS or name in given}


def run(chosen: Any, place: Path, *, resume: bool) -> tuple[Any, Any, bool]:
    """The run; returns results, what came of describing, and whether this process speaks."""
    from ..features.team import join, leave
    from ..runs.finetune import finetune
    from ..train.engine import start
    from ..train.signals import Interrupted

    tuning = chosen.finetune
    fabric = start(devices=tuning.devices, nodes=tuning.nodes, precision=chosen.precision, device=chosen.device)
    team = join()
    try:
        with progress_bars(show=team.leads) as progress, team.together():
            runs, done = finetune(
                chosen, place, fabric, resume=resume, team=team, tick=progress, report=o.download_report()
            )
    except Interrupted:
        if team.leads:
            typer.secho(f"bcnn: stopped and saved in {place}; the same command goes on from there.", err=True)
        raise
    except ArithmeticError:  # all processes know
        if not team.leads:
            raise SystemExit(2) from None
        raise
    finally:
        leave()
    return runs, done, team.leads
