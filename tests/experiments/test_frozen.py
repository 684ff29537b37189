"""Descriptors from stored matrices are those of the head itself; a cell's predictions are those of `bcnn train`."""

import json
from dataclasses import replace

import pytest
import torch

from bcnn.classify.fit import fit_classifier
from bcnn.data.contract import TEST, TRAIN
from bcnn.experiments.jobs.frozen import Frozen
from bcnn.experiments.jobs.source import source_of
from bcnn.experiments.jobs.tuned import tuned
from bcnn.experiments.plain import to_plain
from bcnn.experiments.table1_normalization import NORMALIZATIONS
from bcnn.experiments.table1_normalization import job as row
from bcnn.experiments.workshop import describe_stored, plain_head
from bcnn.files import read_csv
from bcnn.pooling.head import PAPERS, PRESETS, Head, make_config, ridge_in
from bcnn.runs.config import RunConfig
from bcnn.runs.train import train
from tests.experiments.lab import make_shop, make_subject

HEADS = {
    **{name: PRESETS[name] for name in PAPERS},
    **{
        name: make_config("improved_bcnn", normalize=normalize, eps=eps)
        for name, (normalize, eps) in NORMALIZATIONS.items()
    },
    "power": make_config("improved_bcnn", normalize=("matrix_power(0.3)", "signed_sqrt", "l2")),
    "papers": make_config(
        "improved_bcnn", normalize=("matrix_sqrt", "signed_sqrt(delta=0)", "l2"), eps=1e-6, eps_scale="largest"
    ),
    "absolute": make_config("improved_bcnn", eps=0.5, eps_scale="absolute"),
    "newton": make_config(
        "improved_bcnn", normalize=("matrix_sqrt(forward='newton_schulz', num_iters=5)", "signed_sqrt", "l2")
    ),
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("locations", [4, 40])  # fewer than channels and more
def test_stored_matrices_give_the_descriptors_of_the_head(name, locations):
    torch.manual_seed(0)
    descriptors = torch.relu(torch.randn(3, 12, locations))
    head = Head(HEADS[name]).eval()
    stored = Head(plain_head(HEADS[name].pooling))(descriptors)
    # The signed square root makes the root of what rounding has made of a small entry.
    torch.testing.assert_close(describe_stored(head, stored), head(descriptors), atol=2e-4, rtol=1e-3)


def test_a_black_image_is_described_as_by_the_head():
    descriptors = torch.zeros(1, 6, 9)
    for name in ("improved_bcnn", "o2p"):
        head = Head(name)
        assert torch.equal(describe_stored(head, Head(plain_head("bilinear"))(descriptors)), head(descriptors))


def test_predictions_are_those_of_train(lab, tmp_path):
    shop, subject, results = lab
    config = RunConfig(
        spec=shop.data["cub"], preset=("bcnn", "improved_bcnn"), backbone="tiny", weights=None, size=subject.size,
        rescale="none",
    )  # fmt: skip
    train(config, tmp_path)
    for preset in config.preset:
        head = PRESETS[preset]
        own = results.get(Frozen(source_of(subject), head.normalize, ridge_in(head)))
        lines = read_csv(tmp_path / preset / "predictions.csv")
        classes = [f"class_{i}" for i in range(3)]
        assert [classes[i] for i in own.predicted] == [line["class1"] for line in lines]
        assert [classes[i] for i in own.truth] == [line["truth"] for line in lines]
        assert own.accuracy == json.loads((tmp_path / preset / "metrics.json").read_text())["accuracy"]


def test_the_papers_ridge_and_scale_are_those_of_train(lab, tmp_path):
    shop, subject, _ = lab
    job = row(replace(subject, ridge="paper", rescale="median"), "sqrt + sgnsqrt")
    assert (job.eps, job.eps_scale, job.rescale) == (1e-6, "largest", "median")
    assert job.normalize == ("matrix_sqrt", "signed_sqrt(delta=0)", "l2")
    config = RunConfig(
        spec=shop.data["cub"], preset=("improved_bcnn",), backbone="tiny", weights=None, size=subject.size,
        eps=job.eps, eps_scale=job.eps_scale, normalize=job.normalize, rescale=job.rescale,
    )  # fmt: skip
    train(config, tmp_path)
    classes = [f"class_{i}" for i in range(3)]
    lines = read_csv(tmp_path / "predictions.csv")
    assert [classes[i] for i in job.run(shop).result.predicted] == [line["class1"] for line in lines]


def test_without_mirror_images_it_is_train_without_them(lab, tmp_path):
    shop, subject, _ = lab
    job = row(replace(subject, flips=False), "sqrt + sgnsqrt")
    job.source.extract(shop, ["bilinear"])
    assert job.source.stored(shop, "bilinear").matrix(TRAIN).num_views == 1
    config = RunConfig(
        spec=shop.data["cub"], preset=("improved_bcnn",), backbone="tiny", weights=None, size=subject.size,
        rescale="none", flips=False,
    )  # fmt: skip
    train(config, tmp_path)
    classes = [f"class_{i}" for i in range(3)]
    lines = read_csv(tmp_path / "predictions.csv")
    assert [classes[i] for i in job.run(shop).result.predicted] == [line["class1"] for line in lines]


def test_what_came_later_does_not_rename_earlier_jobs(lab):
    _, subject, _ = lab
    assert not {"rescale", "eps_scale"} & set(to_plain(row(subject, "sgnsqrt")))
    assert "flips" not in to_plain(row(subject, "sgnsqrt"))["source"]
    assert "flips" not in to_plain(subject)
    assert to_plain(row(replace(subject, rescale="median"), "sgnsqrt"))["rescale"] == "median"


def test_no_descriptors_are_left_behind(lab):
    shop, _, _ = lab
    assert not list(shop.out.glob(".descriptors-*"))


def test_folders_tell_networks_and_tunings_apart(lab):
    _, subject, _ = lab
    plain = source_of(subject)
    first, second = tuned(replace(subject, seeds=(0, 1)), "bcnn")
    slugs = {plain.slug}
    for job in (first, second):
        slugs.add(replace(plain, tuned=job).slug)
    slugs |= {replace(plain, parameters="0" * 16).slug, replace(plain, images="0" * 16).slug}
    slugs.add(replace(plain, flips=False).slug)
    assert len(slugs) == 6
    assert "/" not in replace(plain, network="timm/resnet18").slug


def test_another_ridge_has_a_folder_of_its_own_before_fine_tuning(lab):
    shop, subject, _ = lab
    ours, papers, rescaled = (
        tuned(replace(subject, **other), "lyapunov")[0] for other in ({}, {"ridge": "paper"}, {"rescale": "median"})
    )
    assert ours.before_folder(shop) != papers.before_folder(shop)
    assert ours.before_folder(shop) == rescaled.before_folder(shop)  # the same descriptors


def test_too_little_room_is_said_before_anything_is_written(tmp_path, monkeypatch):
    shop = make_shop(tmp_path)
    subject = make_subject(shop)
    job = Frozen(source_of(subject), ("l2",), 0.0)
    job.source.extract(shop, ["bilinear"])
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.raises(OSError, match=r"MB free in .* for descriptors, got 0.0 MB; make room"):
        job.run(shop)


def test_test_images_are_averaged_over_both_views(lab):
    shop, subject, results = lab
    job = Frozen(source_of(subject), ("signed_sqrt", "l2"), 0.0)
    stored, own = job.source.stored(shop, "bilinear"), results.get(job)
    train, test = (describe_stored(Head(job.head), stored.matrix(split).columns(0, 10**6)) for split in (TRAIN, TEST))
    rows = stored.matrix(TRAIN)
    fitted = fit_classifier(train, rows.labels, 3, kind="svm", C=1.0, groups=rows.groups.numpy(), calibrate=False)
    scores = (test @ fitted.weight.float().T + fitted.bias.float()).unflatten(0, (-1, 2))
    assert list(own.predicted) == scores.mean(1).argmax(1).tolist()
    assert len(own.predicted) == own.num_test == 12
