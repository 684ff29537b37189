"""From which size on mirrored products pay: the time of `symmetric_product` over that of a plain one.

Run:      python benchmarks/symmetric_product.py       (MKL_ENABLE_INSTRUCTIONS=AVX2 to see another processor's choice)
Cost:     half a minute
Expected: `MIN_DIM_BLOCKED` in bcnn/linalg/products.py is the least size that loses nowhere
"""

import statistics
import time
from collections.abc import Callable

import torch

from bcnn import machine
from bcnn.linalg import products

DIMS, BATCHES, ROUNDS = (128, 192, 256, 320, 384, 448, 512, 768), (2, 8, 32), 30


def ratio(first: Callable[[], object], second: Callable[[], object]) -> float:
    """The middle of the ratios of second to first, round by round."""
    times: list[list[float]] = [[], []]
    for i in range(ROUNDS + 1):
        for run, own in zip((first, second), times, strict=True):
            begin = time.perf_counter()
            run()
            if i:  # the first warms up
                own.append(time.perf_counter() - begin)
    return statistics.median(b / a for a, b in zip(*times, strict=True))


def main() -> None:
    products.MIN_DIM_BLOCKED = 1
    print("| batch | " + " | ".join(f"d = {d}" for d in DIMS) + " |")
    print("| ---: | " + " | ".join("---:" for _ in DIMS) + " |")
    for batch in BATCHES:
        found = []
        for d in DIMS:
            U = torch.randn(batch, d, d)
            found.append(ratio(lambda U=U: U @ U.mT, lambda U=U: products.symmetric_product(U, U.mT)))
        print(f"| {batch} | " + " | ".join(f"{one:.2f}" for one in found) + " |", flush=True)
    about = machine.facts()
    print(", ".join(str(about[name]) for name in ("machine", "threads", "torch") if name in about))


if __name__ == "__main__":
    main()
