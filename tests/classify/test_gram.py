"""Products by blocks equal products at once, from whatever holds the descriptors."""

import numpy as np
import pytest
import torch

from bcnn.classify import gram as module
from bcnn.classify.gram import as_matrix, combine, gram, scores

from .builders import blobs

X, _ = blobs(n=70, d=500)


@pytest.fixture(params=[None, 4 * 70 * 32, 1], ids=["one block", "many blocks", "least blocks"])
def block_bytes(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(module, "BLOCK_BYTES", request.param)


@pytest.mark.usefixtures("block_bytes")
@pytest.mark.parametrize("small", [True, False])
def test_gram_in_blocks_is_the_gram_matrix(small, monkeypatch):
    monkeypatch.setattr(module, "SMALL", 1e12 if small else 0)
    monkeypatch.setattr(module, "_ROWS", 32)
    K = gram(as_matrix(X))
    assert K.dtype == torch.float64
    assert torch.equal(K, K.mT)
    np.testing.assert_allclose(K, X @ X.T, atol=1e-14)
    single = X.astype(np.float32)
    exact = single.astype(np.float64) @ single.T.astype(np.float64)
    np.testing.assert_allclose(gram(as_matrix(single)), exact, atol=1e-14 if small else 1e-6)


@pytest.mark.usefixtures("block_bytes")
def test_scores_and_combine():
    rng = np.random.default_rng(0)
    beta, bias = torch.from_numpy(rng.normal(size=(70, 3))), torch.tensor([1.0, -2.0, 0.5])
    weight = combine(as_matrix(X), beta)
    assert weight.dtype == torch.float32
    np.testing.assert_allclose(weight, beta.numpy().T @ X, atol=1e-6)
    np.testing.assert_allclose(scores(as_matrix(X), weight, bias), X @ weight.numpy().T + bias.numpy(), atol=1e-6)
    np.testing.assert_allclose(
        scores(as_matrix(X.astype(np.float32)), weight, bias), X @ weight.numpy().T + bias.numpy(), atol=1e-5
    )


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_maps(tmp_path, mode):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode=mode)
    if mode == "c":
        mapped[0, 0] = 7.0  # a private change is not thrown away with the pages
        as_matrix(mapped).columns(0, 5)
        assert mapped[0, 0] == 7.0
        mapped[0, 0] = X[0, 0]
    assert torch.equal(gram(as_matrix(mapped)), gram(as_matrix(X)))
    assert torch.equal(gram(as_matrix(mapped[10:40])), gram(as_matrix(X[10:40])))


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (torch.ones(2, 3), torch.float32),
        (torch.ones(2, 3).double(), torch.float64),
        (torch.ones(2, 3).bfloat16(), torch.float32),
        (np.ones((2, 3), np.float16), torch.float32),
        (np.ones((2, 3), np.int64), torch.float64),
        (np.ones((2, 3), ">f4"), torch.float32),
        (np.ones((3, 2)).T, torch.float64),
        ([[1, 1, 1], [1, 1, 1]], torch.float64),
    ],
)
def test_arrays_of_all_kinds(array, dtype):
    block = as_matrix(array).columns(1, 3)
    assert block.dtype == dtype
    assert torch.equal(block, torch.ones(2, 2, dtype=dtype))


def test_every_column_is_read_once(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_BYTES", 4 * 70 * 32)

    class Counting:
        shape = X.shape
        read: tuple[tuple[int, int], ...] = ()

        def columns(self, start, stop):
            self.read += ((start, stop),)
            return torch.from_numpy(X[:, start:stop].copy())

    matrix, heard = Counting(), []
    assert as_matrix(matrix) is matrix
    gram(matrix, lambda *event: heard.append(event))
    assert matrix.read == tuple((i, min(i + 32, 500)) for i in range(0, 500, 32))
    assert heard[-1] == ("gram", 500, 500)
    assert len(heard) == len(matrix.read)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_named(value):
    bad = X.copy()
    bad[13, 444] = value
    with pytest.raises(ValueError, match="in row 13, column 444"):
        gram(as_matrix(bad))


def test_large_numbers_are_finite():
    assert gram(as_matrix(np.full((2, 3), 3e38, np.float32))).isfinite().all()


def test_errors():
    with pytest.raises(ValueError, match=r"shape \(n, d\), got \(3,\)"):
        as_matrix(np.ones(3))
    with pytest.raises(ValueError, match="expected descriptors of 4 columns, as at training, got 3"):
        scores(as_matrix(np.ones((2, 3))), torch.ones(2, 4), torch.ones(2))
