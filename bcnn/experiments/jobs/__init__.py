"""The ways a number is measured, one file each, registered here with what they give."""

from typing import Any, ClassVar, Protocol

from ..gauge import Gauge
from ..records import Outcome, R_co
from ..run_folder import TunedResult
from ..workshop import Workshop
from .boosted import Boosted
from .forward_time import ForwardTime, ForwardTimeResult
from .frozen import Frozen, FrozenResult
from .gradient_errors import GradientErrors, GradientErrorsResult
from .source import Source
from .system import System, SystemResult
from .tuned import Tuned


class Job(Protocol[R_co]):
    """One measurement: a frozen dataclass of plain data that says all its result depends on."""

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """What it is, in a few words, for the plan, the progress bar and the report."""
        ...

    @property
    def sources(self) -> tuple[tuple[Source, str], ...]:
        """The stored descriptors it takes, each with the name of its pooling."""
        ...

    def seconds(self, gauge: Gauge) -> float:
        """How long it will take, from measured samples, not counting the descriptors it takes."""
        ...

    def run(self, shop: Workshop) -> Outcome[R_co]:
        """Do the measurement and return its result."""
        ...


def before(job: Job[Any]) -> tuple[Tuned, ...]:
    """The fine-tunings that have to be done first: those of the networks whose descriptors the job takes."""
    return tuple(source.tuned for source, _ in job.sources if source.tuned is not None)


JOBS: dict[str, tuple[type[Job[Any]], type]] = {
    "frozen": (Frozen, FrozenResult),
    "tuned": (Tuned, TunedResult),
    "system": (System, SystemResult),
    "boosted": (Boosted, SystemResult),
    "forward_time": (ForwardTime, ForwardTimeResult),
    "gradient_errors": (GradientErrors, GradientErrorsResult),
}
