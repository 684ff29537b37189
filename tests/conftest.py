"""Set-up of every test."""

import os

# Some virtual machines announce AMX and end the process when bfloat16 uses it (`bcnn.descriptors.bfloat16`).
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # commands that tests start share the cores, too

import signal
import sys
from pathlib import Path

import pytest
import torch

# The workers of pytest-xdist share the cores; a test that needs more threads asks for them.
NUM_THREADS = int(os.environ["OMP_NUM_THREADS"])
torch.set_num_threads(NUM_THREADS)


def pytest_collection_modifyitems(items):
    """The long ones first, lest they be waited for; then those that share `lab`, so that one worker has them all."""
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, "lab" not in item.fixturenames))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(NUM_THREADS)


@pytest.fixture(scope="session", autouse=True)
def _commands_hear_signals():
    """Who starts the tests in the background or by nohup has some ignored, and commands that tests start, too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _nobody_waits_for_the_disk():
    """Tests write thousands of small files, three milliseconds each, and none need outlive a loss of power."""
    wait, os.fsync = os.fsync, lambda handle: None
    yield
    os.fsync = wait


@pytest.fixture(scope="session", autouse=True)
def _each_kind_of_picture_is_drawn_once():
    """Runs draw what nobody looks at, a second each: the first picture of a function stands for its others, too.

    Pictures are what `tests/report` is about: every one is drawn there.
    """
    from matplotlib.figure import Figure

    draw, drawn = Figure.savefig, {}

    def savefig(self, target, **options):
        kind = sys._getframe(1).f_code
        in_a_file = isinstance(target, Path) and "tests/report/" not in os.environ.get("PYTEST_CURRENT_TEST", "")
        if in_a_file and kind in drawn:
            target.write_bytes(drawn[kind])
            return
        draw(self, target, **options)
        if in_a_file:
            drawn[kind] = target.read_bytes()

    Figure.savefig = savefig
    yield
    Figure.savefig = draw
