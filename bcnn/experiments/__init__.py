"""The paper's tables and figures, one file each, registered here; what it prints is in ``paper/``."""

from . import (
    figure2_exponent,
    gradient_precision,
    table1_normalization,
    table2_finetuning,
    table3_newton_iterations,
    table4_prior_work,
    which_network,
)
from .contract import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "table1_normalization": table1_normalization.EXPERIMENT,
    "figure2_exponent": figure2_exponent.EXPERIMENT,
    "table2_finetuning": table2_finetuning.EXPERIMENT,
    "table3_newton_iterations": table3_newton_iterations.EXPERIMENT,
    "table4_prior_work": table4_prior_work.EXPERIMENT,
    "which_network": which_network.EXPERIMENT,
    "gradient_precision": gradient_precision.EXPERIMENT,
}
