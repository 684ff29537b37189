"""Benchmarks: ratios within one run, errors against float64, files written whole or not at all."""
