"""Set-up of every test."""

import os

# Some virtual machines announce AMX and end the process when bfloat16 uses it (`bcnn.features.bfloat16`).
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # commands that tests start share the cores, too

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
