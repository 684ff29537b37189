"""Descriptors from stored eigendecompositions are those of the head; matrices are decomposed once, whatever happens."""

import pytest
import torch

from bcnn.data.contract import TEST, TRAIN
from bcnn.experiments import spectra
from bcnn.experiments.jobs.frozen import descriptors
from bcnn.experiments.jobs.source import source_of
from bcnn.experiments.workshop import describe_stored, plain_head
from bcnn.files import DamagedFileError
from bcnn.linalg.spectrum import eigh
from bcnn.pooling.head import Head
from bcnn.pooling.triangle import full_matrix
from bcnn.progress import silent
from tests.experiments.test_frozen import HEADS

SERVED = ("improved_bcnn", "o2p", "power", "papers", "absolute")


def _decomposed(features):
    return spectra.decompose(full_matrix(Head(plain_head("bilinear"))(features)))


def test_heads_that_ask_for_a_method_are_left_alone():
    served = {name for name, config in HEADS.items() if spectra.serve(Head(config))}
    assert set(SERVED) <= served
    assert not served & {"average", "bcnn", "newton"}


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("locations", [4, 40])  # fewer than channels and more
def test_descriptors_are_those_of_the_head(name, locations):
    torch.manual_seed(0)
    features = torch.relu(torch.randn(3, 12, locations))
    head = Head(HEADS[name]).eval()
    # The signed square root makes the root of what rounding has made of a small entry.
    torch.testing.assert_close(spectra.describe(head, _decomposed(features)), head(features), atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["improved_bcnn", "o2p"])
def test_a_black_image_is_described_as_by_the_head(name):
    features, head = torch.zeros(1, 6, 9), Head(name).eval()
    torch.testing.assert_close(spectra.describe(head, _decomposed(features)), head(features))


def test_the_root_is_as_exact_as_that_of_the_formed_matrix():
    torch.manual_seed(1)
    features = torch.relu(torch.randn(2, 32, 50)) * torch.logspace(0, -2, 32)[:, None]
    head = Head("improved_bcnn", normalize=("matrix_sqrt",)).eval()
    exact, own = head(features.double()), spectra.describe(head, _decomposed(features))
    assert ((own - exact).norm(dim=1) / exact.norm(dim=1)).max() < 1e-6


def _stored(lab):
    shop, subject, _ = lab
    return shop, source_of(subject).stored(shop, "bilinear")


def test_each_matrix_is_decomposed_once(lab, tmp_path, monkeypatch):
    shop, stored = _stored(lab)
    rows, seen = stored.matrix(TRAIN), []
    monkeypatch.setattr(spectra, "eigh", lambda A: seen.append(len(A)) or eigh(A))
    for name in ("improved_bcnn", "power", "papers"):
        head = Head(HEADS[name]).eval()
        with descriptors(head, rows, shop, name, tmp_path / "spectra") as own:
            exact = torch.cat([describe_stored(head, part) for part in rows.parts()])
            torch.testing.assert_close(torch.from_numpy(own.copy()), exact, atol=2e-4, rtol=1e-3)
    assert sum(seen) == rows.shape[0]


def test_splits_have_files_of_their_own_and_lost_ones_are_made_again(lab, tmp_path):
    _, stored = _stored(lab)
    folder = tmp_path / "spectra"
    for split in (TRAIN, TEST):
        rows = stored.matrix(split)
        first = [own.sigma for own in spectra.spectra(folder, rows, silent, "")]
        assert sum(map(len, first)) == rows.shape[0]
        lost = sorted(folder.glob(f"{split}-*"))[0]
        lost.unlink()
        again = [own.sigma for own in spectra.spectra(folder, rows, silent, "")]
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        assert lost.exists()


def test_a_damaged_file_is_refused(lab, tmp_path):
    _, stored = _stored(lab)
    folder, rows = tmp_path / "spectra", stored.matrix(TRAIN)
    list(spectra.spectra(folder, rows, silent, ""))
    path = next(folder.iterdir())
    content = bytearray(path.read_bytes())
    content[-3] ^= 0x55
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=path.name):
        list(spectra.spectra(folder, rows, silent, ""))


def test_without_room_the_matrices_are_decomposed_for_every_head(lab, tmp_path, monkeypatch):
    _, stored = _stored(lab)
    rows = stored.matrix(TRAIN)
    monkeypatch.setattr(spectra.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    assert not spectra.fit_on_disk(tmp_path / "new", rows, 8)
