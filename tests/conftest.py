"""Set-up of every test."""

import pytest
import torch

# The workers of pytest-xdist share the cores; a test that needs more threads asks for them.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)
