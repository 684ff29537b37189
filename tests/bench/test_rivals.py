"""Other packages are measured where they are installed, and named where they are not."""

import importlib
import sys
import types

import pytest
import torch

from bcnn.bench import rivals
from bcnn.bench.matfun import SCALARS, cases
from tests.helpers import relative_error, spd


def test_a_rival_that_is_installed_is_measured(monkeypatch):
    module = types.ModuleType("geoopt.linalg")
    module.sym_sqrtm = lambda A: "root"
    module.sym_logm = lambda A: "log"
    monkeypatch.setitem(sys.modules, "geoopt", types.ModuleType("geoopt"))
    monkeypatch.setitem(sys.modules, "geoopt.linalg", module)
    found = cases(torch.eye(3)[None])
    assert found["sqrt"]["geoopt"](torch.eye(3)) == "root"
    assert found["log"]["geoopt"](torch.eye(3)) == "log"
    assert "geoopt" not in found["power"]


def test_a_rival_that_is_not_there_is_named(monkeypatch):
    def fail(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", fail)
    assert set(rivals.missing()) == {rival.name for rival in rivals.RIVALS}
    assert set(rivals.missing().values()) == {"not installed; pip install 'bcnn[rivals]'"}
    assert rivals.find("sqrt")[0] == {}


@pytest.mark.parametrize("function", SCALARS)
def test_a_rival_that_is_here_gives_the_same(function):
    A = spd(3, d=6)
    sigma, U = torch.linalg.eigh(A)
    exact = (U * SCALARS[function](sigma)[..., None, :]) @ U.mT
    for rival in rivals.find(function)[0].values():
        assert relative_error(rival(A), exact) < 1e-10
