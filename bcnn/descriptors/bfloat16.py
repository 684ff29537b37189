"""bfloat16 on processors that promise more than they keep.

Some virtual machines announce AMX, Intel's tile instructions, and then end the process ("illegal instruction") when
torch uses them for bfloat16 products. The remedy is an environment variable that oneDNN reads at its first use.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

VARIABLE = "ONEDNN_MAX_CPU_ISA"
WITHOUT_AMX = "AVX512_CORE_BF16"

_PROBE = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"


def avoid_broken_amx(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Try bfloat16 in a process of its own and, if that dies, tell oneDNN to do without AMX; True if it was told.

    To be called before the first operation of torch in this process; costs a second, on processors with AMX alone.
    """
    if VARIABLE in os.environ or not cpuinfo.exists() or "amx" not in cpuinfo.read_text():
        return False
    if subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=False).returncode == 0:
        return False
    os.environ[VARIABLE] = WITHOUT_AMX
    return True
