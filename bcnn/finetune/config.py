"""Everything that makes a fine-tuning, as plain data.

Paper: Sec. 3.2, "Training and evaluation": logistic regression first, then stochastic gradient descent with momentum,
50 to 100 epochs, learning rate 0.001, left-right flips. What it does not say is in the authors' scripts: `recipes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from ..options import check, declared_by, option
from .recipes import RECIPES

VALIDATION, TEST = "validation", "test"
PANEL = "Fine-tuning (with --finetune)"

_option = partial(option, needs="finetune", panel=PANEL)
_work = partial(option, needs="finetune", panel="Fine-tuning: how the work is done", result=False)


@dataclass(frozen=True)
class FinetuneSession:
    """How a session of fine-tuning begins: options of `bcnn train` that the configuration does not hold."""

    resume: bool = _option(
        True,
        help="Go on where an earlier session ended. --no-resume starts the training again from the beginning.",
    )
    recipe: str | None = _option(
        None,
        choices=tuple(RECIPES),
        show_default="ours",
        help="A set of values for the options of fine-tuning; paper has those of the authors (docs/finetuning.md). "
        "Options that you give take precedence.",
    )


@dataclass(frozen=True)
class FinetuneConfig:
    """What `bcnn train --finetune` takes besides the options of a run; the names are those of its options."""

    epochs: int = _option(
        50, at_least=1, help="How many times to go through the training images. The paper takes 50 to 100."
    )
    lr: float = _option(0.001, above=0, help="The learning rate. 0.001 is the paper's.")
    momentum: float = _option(0.9, at_least=0, below=1, help="The momentum of the gradient descent.")
    weight_decay: float = _option(5e-4, at_least=0, help="How strongly every step pulls all weights to zero.")
    batch_size: int = _option(
        16,
        at_least=1,
        help="Images per step, over all processes. --batch of them go through the network at a time.",
    )
    schedule: str = _option(
        "constant",
        choices=("constant", "cosine", "step"),
        help="How the learning rate changes with the epochs. The paper's is constant.",
    )
    warmup_epochs: float = _option(0.0, at_least=0, help="Raise the learning rate from 0 over this many epochs.")
    step_epochs: int = _option(
        30, at_least=1, help="With --schedule step: how many epochs pass between two changes of the learning rate."
    )
    step_factor: float = _option(
        0.1, above=0, help="With --schedule step: what the learning rate is multiplied by at a change."
    )
    clip: float | None = _option(
        None, above=0, show_default="no limit", help="The largest length of the gradient; a longer one is shortened."
    )
    lr_scale: tuple[str, ...] = _option(
        (),
        show_default="the same rate for all",
        help="The learning rate of a part relative to the others, such as scorer=10 or conv1=0.1. Repeat the "
        "option for other parts.",
    )
    decay_scale: tuple[str, ...] = _option(
        (),
        show_default="the same for all",
        help="The weight decay of a part relative to the others, such as scorer=0. Repeat the option for other parts.",
    )
    freeze_until: str | None = _option(
        None, show_default="train all", help="Leave the layers up to and including this one as they are, such as conv4."
    )
    val_share: float = _option(
        0.1,
        at_least=0,
        below=1,
        help="The share of the training images that is held out to choose the epoch on. With 0 the network is trained "
        "on all of them, and the last epoch is kept.",
    )
    select_on: str = _option(
        VALIDATION,
        choices=(VALIDATION, TEST),
        help="The images that the epoch is chosen on. Take test ONLY to compare with published numbers: every output "
        "says so.",
    )
    # By default the loss: a few held-out images tell little by their accuracy.
    select_by: str = _option("loss", choices=("loss", "accuracy"), help="The measure that the epoch is chosen by.")
    init_c: float = _option(
        1.0, above=0, flag="--init-C", help="C of the logistic regression that the last layer starts from."
    )
    on_nonfinite: str = _option(
        "stop",
        choices=("stop", "skip"),
        result=False,
        help="What to do at a loss or gradient that is not finite: stop the training, or skip the step.",
    )
    checkpoint_minutes: float = _work(
        10.0, at_least=0, help="Minutes between two saved states. The end of every epoch is saved in any case."
    )
    checkpoint_activations: bool = _work(
        False, help="Compute the outputs of layers again in the backward pass, which saves memory."
    )
    compile: bool = _work(
        False, result=True, help="Compile the network with torch.compile, which needs a C++ compiler."
    )
    cache_frozen: bool = _work(
        True, help="Store the output of frozen layers once, instead of computing it again in every epoch."
    )
    memory_gb: float = _work(1.0, at_least=0, help="Gigabytes of memory for decoded images, per process.")
    devices: int = _work(
        1, at_least=1, help="Processes or GPUs per machine. Under torchrun, torchrun's own number counts."
    )
    nodes: int = _work(1, at_least=1, help="The number of machines.")

    def __post_init__(self) -> None:
        check(self, "finetune")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"finetune: expected warmup_epochs below epochs, got {self.warmup_epochs} and {self.epochs}."
            )
        _ = self.factors("lr_scale"), self.factors("decay_scale")

    def factors(self, option: str) -> dict[str, float]:
        """The learning rates or weight decays of parts, relative to the others."""
        factors: dict[str, float] = {}
        for text in getattr(self, option):
            part, _, number = str(text).partition("=")
            try:
                factors[part.strip()] = float(number)
            except ValueError:
                factors[part.strip()] = math.nan
            if not part.strip() or not 0 <= factors[part.strip()] < math.inf:
                raise ValueError(f"finetune: expected {option} such as 'conv5=0.1', got {text!r}.")
        return factors


# Change the way, not the result.
HOW = tuple(name for name, declared in declared_by(FinetuneConfig).items() if not declared.result)
