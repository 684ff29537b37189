"""Bounds of the spectrum: what they may not do on a device that no test machine has."""

from typing import Any

import torch
from torch import Tensor

from bcnn.linalg.scaling import frobenius, trace

from ..helpers import spd


class OnMps(Tensor):
    """A tensor that says it lies on Apple's GPU, and refuses float64 as that does."""

    @property
    def device(self) -> torch.device:
        return torch.device("mps")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Tensor) and result.dtype == torch.float64:
            raise TypeError(f"{func}: no float64 on MPS")
        return result


def test_bounds_keep_float64_away_from_devices_without_it():
    A = spd(3, d=8, dtype=torch.float32)
    for bound in (frobenius, trace):
        torch.testing.assert_close(bound(A.as_subclass(OnMps)).as_subclass(Tensor), bound(A))
