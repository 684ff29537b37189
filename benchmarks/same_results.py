"""Whether two results are the same numbers: before and after a change that is meant to keep them.

Run: python benchmarks/same_results.py results/cub46/results.jsonl runs/again/results.jsonl   (of bcnn reproduce)
     python benchmarks/same_results.py benchmarks/results/train_textures_alexnet.csv runs/demo/comparison.csv

Of measurements that both have, accuracies and the prediction for every test image are compared; of tables, the columns
that are no times. Exits with 1 if anything differs, or if there is nothing to compare.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from bcnn.files import read_csv

MAY_DIFFER = ("_s", "_ms", "machine", "threads", "python", "torch")  # columns that end so


def measurements(path: Path) -> dict[str, dict[str, object]]:
    """Accuracy and predictions by job, as text."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {}
    for line in lines:
        result = line.get("result", {})
        if "accuracy" in result:
            own = {name: result.get(name) for name in ("accuracy", "top5_accuracy", "predicted")}
            found[json.dumps(line["job"], sort_keys=True)] = own
    return found


def rows(path: Path) -> dict[str, dict[str, object]]:
    """The lines of a table, by preset."""
    lines = read_csv(path)
    return {line["preset"]: {k: v for k, v in line.items() if not k.endswith(MAY_DIFFER)} for line in lines}


def same(one: object, other: object) -> bool:
    """Numbers as numbers: the last digit of an interval may depend on a library."""
    try:
        return math.isclose(float(str(one)), float(str(other)), rel_tol=1e-12)
    except ValueError:
        return one == other


def main() -> int:
    """Compare, print what differs, and count."""
    before, after = (rows(path) if path.suffix == ".csv" else measurements(path) for path in map(Path, sys.argv[1:3]))
    both = [key for key in before if key in after]
    differing = 0
    for key in both:
        wrong = [name for name in before[key] if not same(before[key][name], after[key].get(name))]
        if wrong:
            differing += 1
            shown = [f"{name} {str(before[key][name])[:40]} -> {str(after[key].get(name))[:40]}" for name in wrong]
            print(f"{key[:160]}\n    {'; '.join(shown)}")
    print(f"{len(both)} in both, {len(both) - differing} the same, {differing} different")
    return int(not both or differing > 0)


if __name__ == "__main__":
    sys.exit(main())
