"""The ways a number is measured, one file each, registered here with what they give."""

from typing import Any

from ..run_folder import TunedResult
from .contract import Job
from .forward_time import ForwardTime, ForwardTimeResult
from .frozen import Frozen, FrozenResult
from .gradient_errors import GradientErrors, GradientErrorsResult
from .tuned import Tuned

JOBS: dict[str, tuple[type[Job[Any]], type]] = {
    "frozen": (Frozen, FrozenResult),
    "tuned": (Tuned, TunedResult),
    "forward_time": (ForwardTime, ForwardTimeResult),
    "gradient_errors": (GradientErrors, GradientErrorsResult),
}
