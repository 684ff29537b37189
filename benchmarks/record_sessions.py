"""Runs the commands that README.md and docs/tutorial.md show, and keeps what they print; update_docs.py puts it there.

Run: python benchmarks/record_sessions.py          (AlexNet's weights must be here, see `bcnn weights fetch`; minutes)
     python benchmarks/update_docs.py

The photographs are made by the first block of Python in docs/tutorial.md, in a temporary folder, as a reader would do
it. What is printed is kept as it is, without colours, at a width of 100 columns. The picture of the confusion matrix
goes to docs/tutorial_confusion.png.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bcnn import machine
from bcnn.files import written_whole

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "benchmarks" / "results" / "sessions.json"
TUTORIAL = ROOT / "docs" / "tutorial.md"
PICTURE = ROOT / "docs" / "tutorial_confusion.png"

# By name, in this order, all in one folder: a later session may use what an earlier one has made.
SESSIONS: dict[str, str] = {
    "check": "bcnn datasets check photos",
    "train": "bcnn train photos --backbone alexnet --size 128 --out runs/first",
    "folder": "ls runs/first",
    "predict": "bcnn predict runs/first new/brick.png new/coins.png new/page.png --top 3",
    "csv": "bcnn predict runs/first new --format csv --top 1",
    "compare": "bcnn train photos --backbone alexnet --size 128 --preset average,bcnn,improved_bcnn --out runs/three",
    "finetune": "bcnn train photos --backbone alexnet --size 128 --finetune --epochs 5 --out runs/tuned",
}


def photographs(folder: Path, *replace: str) -> None:
    """Makes photos/ and new/ by the code that the tutorial shows; `replace` are a text in it and another for it."""
    block = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)[0]
    block = block.replace(*replace) if replace else block
    subprocess.run([sys.executable, "-c", block], cwd=folder, env=environment(), check=True)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}


def run(command: str, folder: Path) -> str:
    """What the command prints. A command that fails is an error."""
    here = f'"{sys.executable}" -m bcnn '
    line = here + command.removeprefix("bcnn ") if command.startswith("bcnn ") else command
    done = subprocess.run(
        line, shell=True, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise RuntimeError(f"expected `{command}` to succeed, got exit code {done.returncode}:\n{done.stdout}")
    return "\n".join(text.rstrip() for text in done.stdout.strip("\n").splitlines())


def record(folder: Path) -> dict[str, Any]:
    sessions = {}
    for name, command in SESSIONS.items():
        print(f"$ {command}", flush=True)
        sessions[name] = {"command": command, "output": run(command, folder)}
        print(sessions[name]["output"], flush=True)
    return {"machine": machine.facts(), "sessions": sessions}


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        photographs(folder)
        records = record(folder)
        shutil.copyfile(folder / "runs" / "first" / "confusion.png", PICTURE)
    with written_whole(RECORDS) as path:
        path.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
