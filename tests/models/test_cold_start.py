"""What opening a network does not load: seconds of a command that predicts one image."""

import subprocess
import sys

CODE = """
import sys
from bcnn.models.build import build_model
from bcnn.models.files import _empty

model = _empty(build_model("improved_bcnn", backbone="alexnet", weights="none", size=64).config)
assert model.branches[0].backbone.num_channels == 256
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""


def test_torchs_compiler_stays_away():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
