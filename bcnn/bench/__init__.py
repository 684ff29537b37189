"""Benchmarks: ratios within one run, errors against float64, files written whole or not at all.

A benchmark is a module of this folder that ends with its `BENCHMARK`. The registry has its name and what the help of
`bcnn bench` says about it; torch and all the rest are imported when it is loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .contract import Benchmark

BENCHMARKS = {
    "matfun": "Time and precision of matrix functions and their gradients, as ratios to torch.linalg.eigh + autograd.",
    "pooling": "What heads cost next to their network, what the thin path and bfloat16 save, and how exact they are.",
    "extract": "Extraction from files to disk next to the bare network on tensors, and its memory.",
    "svm": "One-vs-rest SVMs over wide features on disk, next to scikit-learn's LinearSVC: time, memory, agreement.",
    "step": "What a step of fine-tuning spends on data, network, pooling, matrix function, classifier and update.",
}


def load(name: str) -> Benchmark:
    """The benchmark of that name."""
    benchmark: Benchmark = import_module(f".{name}", __name__).BENCHMARK
    return benchmark
