"""MATLAB files, which SciPy reads by code that a damaged one can crash: another process tries them first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from ..files import MOST_TEXT, check_regular
from .contract import shown

LIMIT_S = 120.0  # for one file; half a gigabyte takes seconds
_CODE = """
import sys
sys.path[:] = [path for path in sys.path if path]  # nothing from the current folder
from scipy.io import loadmat
try:
    loadmat(sys.argv[1])
except BaseException as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def read(path: Path, what: str, **options: Any) -> dict[str, Any]:
    """The variables of a file; `options` are those of `scipy.io.loadmat`.

    Args:
        path: of the file.
        what: what it is expected to be, for the error.

    Raises: ValueError for a file that cannot be read, or crashes or stops the library.
    """
    problem = _problem(path)
    if not problem:
        from scipy.io import loadmat

        try:
            content: dict[str, Any] = loadmat(str(path), **options)
            return content
        except Exception as error:  # SciPy lets through whatever a damaged file makes happen
            problem = f"{type(error).__name__}: {error}"
    raise ValueError(f"{shown(str(path))}: expected {what}, got {shown(problem)}; download it again.")


def _problem(path: Path) -> str:
    """What happens to another process that reads it; empty if nothing does."""
    check_regular(path, MOST_TEXT)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CODE, str(path.absolute())], capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"one that takes more than {LIMIT_S:g} s to read"
    if done.returncode < 0:
        return "one that crashes the library that reads it"
    return done.stderr.decode(errors="replace").strip() if done.returncode else ""
