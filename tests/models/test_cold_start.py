"""What opening a network does not load: seconds of a command that predicts one image."""

import subprocess
import sys

import pytest
import torch

CODE = """
import sys
import torch
from bcnn.models.build import build_model, skeleton

config = build_model("improved_bcnn", backbone="alexnet", weights="none", size=64).config
with torch.device("meta"):  # as a file of a network is opened
    model = skeleton(config)
assert model.branches[0].backbone.num_channels == 256
print(sorted({"torch._dynamo", "torch._inductor", "sympy"} & set(sys.modules)))
"""


@pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="torch 2.6 loads SymPy where it is asked for meta")
def test_torchs_compiler_stays_away():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
