"""One thread a worker by default: the two of pytest-xdist share two cores."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
