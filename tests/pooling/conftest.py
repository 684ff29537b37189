import pytest
import torch

from tests.seams.conftest import pictures  # noqa: F401 - a folder with three classes, for parts led to the end


@pytest.fixture
def compiled():
    """Compiles whole; the compiler takes one function, such as a head's, in a few variants at a time only.

    That of torch 2.6 takes no matrix functions: there it stays as it is, and tests named after compiling are left out.
    """
    torch.compiler.reset()
    old = torch.__version__.startswith("2.6.")
    yield lambda function: function if old else torch.compile(function, backend="aot_eager", fullgraph=True)
    torch.compiler.reset()
