"""The two ways to a Tensor Sketch: through the matrix, which is formed, and through the FFT of the columns.

Run:  OMP_NUM_THREADS=1 python benchmarks/sketch_ways.py

The constants of `bcnn.pooling.tensor_sketch.fft_pays_off` come from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

import bcnn
from bcnn.parts.shapes import Spd
from bcnn.pooling import tensor_sketch as module

CASES = ((256, 784), (512, 49), (512, 196), (512, 784), (1280, 196), (2048, 49), (2048, 196))
WIDTH = 8192


def median_ms(work: Callable[[], Tensor], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return sorted(times[1:])[repeats // 2]


@torch.no_grad()
def main() -> None:
    print(f"ms per image, width {WIDTH}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{'d':>5} {'n':>4} {'A: formed':>10} {'fft':>8} {'A^(1/2): formed':>16} {'fft':>8}  chosen")
    choose = module.fft_pays_off
    for d, n in CASES:
        X = torch.relu(torch.randn(2, d, n)) / n**0.5
        A = bcnn.Factored(X, 1e-3 * X.square().sum((-2, -1)))
        sketch, root = module.TensorSketch((Spd(d),), WIDTH), bcnn.MatrixSqrt()
        found = []
        for given in (A, module.Applied(root, A)):
            for way in (False, True):
                module.fft_pays_off = lambda *_, way=way: way
                found.append(median_ms(lambda given=given, sketch=sketch: sketch(given)) / 2)
        chosen = "fft" if choose(d, n, WIDTH) else "formed"
        print(f"{d:5} {n:4} {found[0]:10.2f} {found[1]:8.2f} {found[2]:16.2f} {found[3]:8.2f}  {chosen}")
    module.fft_pays_off = choose


if __name__ == "__main__":
    main()
