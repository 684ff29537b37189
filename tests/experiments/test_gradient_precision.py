"""Precision of gradients."""

import torch

from bcnn.bench.precision import METHODS
from bcnn.bench.regimes import REGIMES
from bcnn.experiments.gradient_precision import EXPERIMENT, REAL, jobs, made_up, real
from bcnn.experiments.records import Subject


def test_every_regime_real_ones_too_in_both_dtypes(lab):
    _, subject, results = lab
    assert len(jobs(subject)) == 2 * (len(REGIMES) + len(REAL))
    for some in (*made_up(subject).values(), *real(subject).values()):
        single, double = (results.get(job) for job in some)
        assert [e.method for e in single.errors] == list(METHODS)
        assert len(double.errors) < len(METHODS)  # nothing is more precise than float64 itself
        assert single.dim == double.dim


def test_the_ridge_of_the_paper_gives_its_condition(lab):
    _, subject, results = lab
    condition = results.get(real(subject)["top"][0]).condition
    assert 1e5 < condition < 1.1e6  # the largest eigenvalue over 10^-6 of itself, unless the spectrum ends above
    assert results.get(real(subject)["trace"][0]).condition < 1.1e3


def test_lyapunov_gradients_hold_where_autograds_do_not(lab):
    _, subject, results = lab
    for job in made_up(subject)["flat"]:
        errors = {e.method: e for e in results.get(job).errors}
        assert errors["eigh + autograd"].num_nonfinite > 0
        assert errors["lyapunov"].num_nonfinite == 0
        assert errors["lyapunov"].gradient_error < (1e-4 if job.dtype == "float32" else 1e-12)


def test_what_is_not_finite_is_counted_in_the_table(lab):
    _, subject, results = lab
    said, *tables = EXPERIMENT.blocks(results, [subject])
    assert "orders of magnitude" in str(said.rows)
    flat = next(table for table in tables if "flat" in table.title)
    row = next(row for row in flat.rows if row[0] == "eigh + autograd")
    count = next(e for e in results.get(made_up(subject)["flat"][0]).errors if e.method == row[0]).num_nonfinite
    assert f"({count} of 8 not finite)" in row[2]
    assert len(tables) == len(REGIMES) + len(REAL)


def test_made_up_matrices_keep_their_regime_in_float64():
    """Rounded to float32, eigenvalues that are to coincide would not."""
    (job,) = [job for job in made_up(Subject("cub", "abc", "tiny", dim=32))["rank_deficient"] if job.dtype == "float64"]
    sigma = torch.linalg.eigvalsh(job._matrices(None))
    gaps = (sigma[:, 1:16] - sigma[:, :15]) / sigma[:, -1:]
    assert gaps.max() < 1e-13
