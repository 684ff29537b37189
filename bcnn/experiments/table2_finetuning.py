"""Table 2: accuracy before and after fine-tuning, without and with the matrix square root (Sec. 3.4).

Gradients of the square root are Lyapunov's, as in the paper.

Run:      bcnn reproduce table2_finetuning --data cub=PATH --networks alexnet --tuned-size 224 --epochs 15 --seeds 0,1,2
Cost:     on 2,734 images, two cores, AlexNet, 224 pixels, 15 epochs, three seeds: 70 min; with VGG-16: not run
Expected: experiments/paper/table2_finetuning.csv (Birds, VGG-D: 80.1 to 84.0, 82.8 to 85.8)
"""

from __future__ import annotations

from typing import Literal

from .contract import Cell, Experiment, jobs_of
from .jobs.tuned import tuned
from .paper import printed
from .records import Subject
from .tables import accuracy_blocks

NORMALIZATIONS = {"sgnsqrt": "bcnn", "sqrt + sgnsqrt": "lyapunov"}  # as the paper writes it, and the scheme
WHEN: dict[str, Literal["accuracy", "before"]] = {"before": "before", "after": "accuracy"}  # and the value of a run


def cells(subject: Subject) -> list[Cell]:
    """Before and after, each with and without the square root."""
    return [
        Cell(
            (name,), tuned(subject, scheme), value=value, part=f"{when} fine-tuning",
            paper=printed("table2_finetuning", subject.dataset, network=subject.network, normalization=name, when=when),
        )
        for when, value in WHEN.items()
        for name, scheme in NORMALIZATIONS.items()
    ]  # fmt: skip


NOTE = (
    "Ours: mean and standard deviation over the seeds; the epoch is chosen on images cut from the training split, "
    "with the paper's recipe it is the last. "
    "Before fine-tuning only random weights depend on the seed; predictions are not kept, and the interval is Wilson's "
    "of the mean."
)
EXPERIMENT = Experiment(
    "Table 2", __doc__, jobs_of(cells), accuracy_blocks(cells, ["normalization"], size="tuned_size", note=NOTE)
)
