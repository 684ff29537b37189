"""What `make test-portable` names is there: pytest runs nothing at all when one path is missing."""

from pathlib import Path

import pytest

from tests.portable import NUMERICAL

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("path", NUMERICAL)
def test_the_numerical_tests_are_there(path):
    assert (ROOT / path).exists()
