"""The tests as other machines would run them: other instructions, other numbers of threads, other work beside them.

Run:      python -m tests.portable                  (make test-portable: the numerical part, six to ten minutes)
          python -m tests.portable --all --repeat 2 (every test, twice under every setting: an hour)
          python -m tests.portable --only busy -- -x (one setting; what follows -- goes to pytest)
"""

import argparse
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

NUMERICAL = [
    "tests/linalg", "tests/matfun", "tests/contracts", "tests/pooling", "tests/classify", "tests/models/test_bcnn.py",
    "tests/models/backbones", "tests/models/engines", "tests/scorers", "tests/fronts",
    "tests/descriptors/test_extract.py", "tests/descriptors/test_bfloat16.py", "tests/finetune/test_loop.py",
    "tests/finetune/test_module.py", "tests/finetune/test_source.py", "tests/runs/test_train.py",
    "tests/runs/test_finetune.py", "tests/runs/test_boost.py", "tests/runs/test_explain.py",
    "tests/runs/test_export.py", "tests/runs/test_labels.py",
    "tests/experiments/test_frozen.py", "tests/bench/test_precision.py", "tests/bench/test_extended.py",
]  # fmt: skip
# What is compiled is the same everywhere, and takes long.
LEFT_OUT = "not compiles and not scikit_learn_checks"

SETTINGS: dict[str, dict[str, str]] = {
    "plain": {},
    "no vector instructions": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512"},
    "one thread": {"OMP_NUM_THREADS": "1"},
    "two threads": {"OMP_NUM_THREADS": "2"},
    "busy": {},  # with two processes beside it that never rest
}


def why_not(setting: str, *, every: bool) -> str | None:
    """Why a setting is left out: this processor cannot, or it is what `make test` has here anyway."""
    processor = Path("/proc/cpuinfo").read_text()
    level = SETTINGS[setting].get("ATEN_CPU_CAPABILITY", "default")
    if level not in ("default", *processor.split()) and f"{level}f" not in processor.split():
        return "this processor cannot"  # ATen takes our word, and ends with an illegal instruction
    widest = "avx512" if "avx512f" in processor.split() else "avx2"
    if every:
        return None
    if setting == "busy":
        return "what hangs on time or luck is in the tests of --all"
    return "as `make test` has it here" if setting in {"plain", "one thread", widest} else None


def run(setting: str, arguments: list[str]) -> bool:
    print(f"--- {setting}: {' '.join(f'{k}={v}' for k, v in SETTINGS[setting].items()) or 'no variables'}", flush=True)
    begin = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--maxprocesses", "2", "--dist", "worksteal"]
    with ExitStack() as beside:
        for _ in range(2 if setting == "busy" else 0):
            process = beside.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            beside.callback(process.kill)
        result = subprocess.run([*command, "-W", "ignore", *arguments], env={**os.environ, **SETTINGS[setting]})
    print(f"--- {setting}: {time.monotonic() - begin:.0f} s, exit code {result.returncode}", flush=True)
    return result.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every test, not the numerical ones alone")
    parser.add_argument("--repeat", type=int, default=1, help="how often under every setting")
    parser.add_argument("--only", choices=SETTINGS, action="append", help="this setting (may be given several times)")
    parser.add_argument("rest", nargs="*", help="for pytest")
    given = parser.parse_args()
    arguments = given.rest if given.all else [*NUMERICAL, "-k", LEFT_OUT, *given.rest]
    bad = []
    for setting in given.only or SETTINGS:
        if reason := why_not(setting, every=given.all or bool(given.only)):
            print(f"--- {setting}: left out, {reason}", flush=True)
            continue
        bad += [setting for _ in range(given.repeat) if not run(setting, arguments)]
    print(f"failed under: {', '.join(bad)}" if bad else "the same under every setting")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
