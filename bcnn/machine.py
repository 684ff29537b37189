"""Which machine and which versions a measurement comes from."""

from __future__ import annotations

import platform
import subprocess
from functools import partial
from pathlib import Path

import torch

from . import __version__


def facts() -> dict[str, str]:
    """Processor, threads and versions, as columns of a results file."""
    return {
        "machine": processor(),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "bcnn": __version__,
    }


def processor() -> str:
    """The processor's name, from the system where it tells."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        fields = dict(
            line.split(":", 1) for line in info.read_text().split("\n\n")[0].splitlines() if line.count(":") == 1
        )
        names = {key.strip(): value.strip() for key, value in fields.items()}
        if "model name" in names:
            extras = [flag for flag in ("avx512f", "amx_bf16") if flag in names.get("flags", "").split()]
            return " ".join([names["model name"], *extras])
    return platform.processor() or platform.machine()


def available_memory() -> int | None:
    """Bytes that programs can still have, without swapping; None where the system does not tell."""
    info = Path("/proc/meminfo")
    if not info.exists():
        return None
    fields = dict(line.split(":", 1) for line in info.read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def commit() -> str | None:
    """The commit of the source that runs, with "+" where files differ from it; None outside of a clone."""
    here = Path(__file__).resolve().parent
    try:
        ask = partial(subprocess.run, cwd=here, capture_output=True, text=True, timeout=10, check=True)
        if Path(ask(["git", "rev-parse", "--show-toplevel"]).stdout.strip()) != here.parent:
            return None  # installed below somebody else's clone
        changed = ask(["git", "status", "--porcelain", "--untracked-files=no", "--", "."]).stdout.strip()
        return ask(["git", "rev-parse", "--short=12", "HEAD"]).stdout.strip() + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def slug() -> str:
    """A short name for files: the architecture, the threads and the version of torch."""
    return f"{platform.machine()}-{torch.get_num_threads()}t_torch{torch.__version__.split('+')[0]}"
