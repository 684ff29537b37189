import pytest
import torch

from tests.seams.conftest import pictures  # noqa: F401 - a folder with three classes, for parts led to the end


@pytest.fixture
def compiled():
    """Compiles whole; the compiler takes one function, such as a head's, in a few variants at a time only."""
    torch.compiler.reset()
    yield lambda function: torch.compile(function, backend="aot_eager", fullgraph=True)
    torch.compiler.reset()
