"""Descriptors that are read a block at a time give the classifier that those in memory give."""

import numpy as np
import pytest
import torch

from bcnn.classify import large as module
from bcnn.classify.calibrate import assign_folds, judged_by
from bcnn.classify.fit import fit_classifier
from bcnn.classify.gram import as_matrix, row_blocks
from bcnn.classify.stream import StreamedSVM

from .builders import blobs, overlapping


class Files:
    """Rows a file at a time, as a folder of descriptors has them."""

    def __init__(self, X: np.ndarray, rows: int = 7):
        self.X, self.rows, self.shape = torch.from_numpy(X).float(), rows, X.shape

    def columns(self, start: int, stop: int) -> torch.Tensor:
        return self.X[:, start:stop]

    def parts(self):
        yield from self.X.split(self.rows)


@pytest.mark.parametrize("make", [as_matrix, Files])
def test_blocks_of_rows_are_all_rows_in_order(make):
    X, _ = blobs(n=50, d=30)
    found = list(row_blocks(make(X), 4 * 30 * 16))
    assert [start for start, _ in found] == list(np.cumsum([0, *(len(b) for _, b in found)])[:-1])
    assert max(len(block) for _, block in found) <= 16
    np.testing.assert_allclose(torch.cat([block for _, block in found]), X, rtol=1e-6)


@pytest.mark.parametrize("kind", ["svm", "svm_squared"])
@pytest.mark.parametrize("rescale", ["none", "median"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [2, 4])
def test_the_same_classifier_as_in_memory(kind, rescale, weighted, k, monkeypatch):
    X, labels = blobs(n=240, d=20, k=k, strength=0.6)
    options = {"kind": kind, "rescale": rescale}
    options |= {"sample_weight": np.linspace(0, 2, 240)} if weighted else {}
    exact = fit_classifier(X, labels, k, **options)
    monkeypatch.setattr(module, "FROM_COLUMNS", 1)
    heard = []
    ours = fit_classifier(Files(X), labels, k, progress=lambda *event: heard.append(event[0]), **options)
    assert ours.converged
    np.testing.assert_allclose(ours.scores(X), exact.scores(X), atol=3e-4)
    assert ours.calibrated
    assert ours.cv_scores is None
    counted = np.arange(240) > (0 if weighted else -1)
    fold = np.full(240, -1)
    fold[counted] = assign_folds(labels[counted], np.arange(240)[counted], 5, 0)
    seen, out = counted & (fold != 0), fold == 0
    weights = {"sample_weight": options["sample_weight"][seen]} if weighted else {}
    inner = fit_classifier(X[seen], labels[seen], k, kind=kind, rescale=rescale, calibrate=False, **weights)
    mass = torch.from_numpy(options["sample_weight"][out]) if weighted else None
    expected = judged_by(inner.scores(X[out]), torch.from_numpy(labels[out]), mass, whole=False)
    assert ours.temperature == pytest.approx(expected.temperature, rel=0.1)
    assert ours.cv_accuracy == pytest.approx(expected.accuracy, abs=0.05)
    assert {"gram", "train"} <= set(heard)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("C", [0.1, 1.0])
def test_overlapping_classes_as_in_memory(C, squared):
    X, labels = overlapping(n=200)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    kind = "svm_squared" if squared else "svm"
    exact = fit_classifier(X, labels, 3, kind=kind, C=C, calibrate=False).scores(X)
    everyone = torch.ones(200, dtype=torch.bool)
    solver = StreamedSVM(as_matrix(X), torch.from_numpy(labels), 3, counted=everyone, C=C, squared=squared)
    found = solver.solve()
    assert found.converged
    np.testing.assert_allclose(X @ found.weight.numpy().T + found.bias.numpy(), exact, atol=1e-3)
    assert 0 <= found.gap < 0.05


def test_samples_held_out_later_are_as_never_seen():
    X, labels = blobs(n=200, d=20, strength=0.6)
    out = torch.arange(200) % 5 == 0
    solver = StreamedSVM(as_matrix(X), torch.from_numpy(labels), 4, counted=torch.ones(200, dtype=torch.bool))
    solver.solve()
    solver.hold_out(out)
    found = solver.solve(tol=1e-4)
    seen = (~out).numpy()
    exact = fit_classifier(X[seen], labels[seen], 4, calibrate=False).scores(X)
    np.testing.assert_allclose(X @ found.weight.numpy().T + found.bias.numpy(), exact, atol=1e-3)
    np.testing.assert_allclose(solver.scores(out), exact[out], atol=1e-3)


@pytest.mark.parametrize("kind", ["svm", "svm_squared"])
def test_rows_of_zeros_repeated_rows_classes_of_one_and_none(kind, monkeypatch):
    X, labels = blobs(n=200, d=20, k=4, strength=0.6)
    X[:5] = 0
    X[5:10] = X[10:15]
    labels = np.where(np.arange(200) == 50, 4, labels)  # one sample of class 4, none of class 5
    exact = fit_classifier(X, labels, 6, kind=kind, calibrate=False)
    monkeypatch.setattr(module, "FROM_COLUMNS", 1)
    ours = fit_classifier(Files(X), labels, 6, kind=kind)
    assert ours.absent == exact.absent == (5,)
    np.testing.assert_allclose(ours.scores(X), exact.scores(X), atol=3e-4)


def test_damaged_rows_are_named(monkeypatch):
    X, labels = blobs(n=200, d=20)
    X[77, 3] = np.nan
    monkeypatch.setattr(module, "FROM_COLUMNS", 1)
    with pytest.raises(ValueError, match="row 77"):
        fit_classifier(Files(X), labels, 4)


def test_too_little_memory_is_said_before_the_work(monkeypatch):
    X, labels = blobs(n=200, d=20)
    monkeypatch.setattr(module, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"to stream 200 rows of 20 numbers for 4 classes.*--finetune"):
        fit_classifier(Files(X), labels, 4)
