"""Exceptions and warnings, and the one place that words an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NotPositiveDefiniteError(ArithmeticError):
    """A matrix function met a matrix outside its domain."""


class NotFiniteError(ValueError, ArithmeticError):
    """Infinite or NaN values where finite ones were expected."""


class ConvergenceError(ArithmeticError):
    """A decomposition did not converge, not even in float64."""


class NonFiniteTrainingError(ArithmeticError):
    """A loss or gradient was not finite, and the run was to stop at that."""


class SecondDerivativeError(RuntimeError):
    """A rule was asked for a second derivative that it does not have. It refuses instead of being silently wrong."""


class PrecisionFallbackWarning(RuntimeWarning):
    """A float32 decomposition did not converge and was repeated in float64."""


class ClampedSpectrumWarning(RuntimeWarning):
    """Eigenvalues below the working precision were raised so that the function is defined."""


class NoisySpectrumWarning(RuntimeWarning):
    """Eigenvalues that cannot be told from zero become large in the result."""


class NotConvergedWarning(RuntimeWarning):
    """An iteration stopped before it met its tolerance."""


class DamagedFileWarning(RuntimeWarning):
    """A file holds something else than was written to it, and is made again."""


class GradientExceptionWarning(RuntimeWarning):
    """A gradient rule met numerical exceptions (infinite or NaN entries); the message counts them.

    Attributes:
        num_matrices: how many had them.
    """

    def __init__(self, message: str, num_matrices: int = 0):
        super().__init__(message)
        self.num_matrices = num_matrices


def unknown_name(who: str, kind: str, name: object, available: Iterable[str]) -> ValueError:
    """The error for a name that is not in a registry, with the closest one that is."""
    names = list(available)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ValueError(f"{who}: unknown {kind} {name!r}; {hint}Available: {', '.join(names)}.")
