"""`bcnn explain`: pictures, training photographs whose shares add up to the score, and words on what is missing."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import bcnn
from bcnn.data.contract import Sample
from bcnn.metrics import Prediction
from bcnn.runs.explain import describe, marks_of, split_scores
from bcnn.runs.neighbours import DUAL, Neighbours
from bcnn.runs.predict import open_run
from tests.command import run_command
from tests.descriptors.images import picture_folder
from tests.seams.walk import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("p")
    pictures = picture_folder(root / "pictures", classes=3, train=8, test=3)
    train(pictures, root / "run")
    return root / "run"


@pytest.fixture
def photographs(run):
    return sorted(path for path in (run.parent / "pictures" / "test").rglob("*") if path.is_file())


def squares(recognizer, paths):
    return [np.asarray(recognizer.model.preprocessing.fit(Image.open(path).convert("RGB"))) for path in paths]


def test_shares_of_training_photographs_add_up_to_the_score(run, photographs):
    recognizer = open_run(run)
    neighbours = Neighbours(run, recognizer)
    assert (neighbours.why_no_shares, neighbours.why_no_photographs) == ("", "")
    pictures, labels = squares(recognizer, photographs[:4]), [0, 1, 2, 1]
    shares = neighbours.shares(neighbours.products(describe(recognizer, pictures)), labels)
    assert shares.shape == (4, 24)
    scores = recognizer.logits(pictures).double() * recognizer.temperature
    wanted = scores[torch.arange(4), labels] - recognizer.model.scorer.bias.double()[labels]
    torch.testing.assert_close(shares.sum(1), wanted, rtol=1e-4, atol=1e-5)
    # By the definition, in float64 from the descriptors themselves.
    rows = torch.cat(list(neighbours.rows.parts())).double()
    weight = neighbours._beta.mT @ rows
    torch.testing.assert_close(weight, recognizer.model.scorer.weight.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [("--finetune", "--epochs", "1", "--batch-size", "6", "--val-share", "0.25"),
     ("--backbone", "tiny,tiny(cut=relu2)", "--pooling", "asymmetric")],
    ids=["fine-tuned", "two networks"],
)  # fmt: skip
def test_other_networks_are_explained_the_same_way(run, photographs, tmp_path, options):
    train(run.parent / "pictures", tmp_path / "run", *options)
    recognizer = open_run(tmp_path / "run")
    if "--finetune" in options:  # which keeps no descriptors
        assert "bcnn explain --describe" in Neighbours(tmp_path / "run", recognizer).why_no_shares
        done = run_command("explain", tmp_path / "run", photographs[0], "--describe")
        assert (done.returncode, done.stderr.count("gone")) == (0, 0), done.stderr
    neighbours = Neighbours(tmp_path / "run", recognizer)
    assert neighbours.why_no_shares == ""
    pictures, labels = squares(recognizer, photographs[:3]), [2, 0, 1]
    shares = neighbours.shares(neighbours.products(describe(recognizer, pictures)), labels)
    split = split_scores(recognizer, pictures, labels)
    wanted = (split.scores - split.bias).double()
    torch.testing.assert_close(shares.sum(1), wanted, rtol=1e-4, atol=1e-4)
    if split.adds_up:
        torch.testing.assert_close(split.shares.double().sum((1, 2)), wanted, rtol=1e-3, atol=1e-3)


def test_marks_for_the_sheet_of_mistakes(run, tmp_path):
    recognizer = open_run(run, batch=2)
    samples = {sample.name: sample for sample in Neighbours(run, recognizer).dataset.of("test")}
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    samples["broken"] = Sample("broken", 0, "test", broken)
    guesses = [Prediction(name, ((recognizer.classes[1], 0.9),), recognizer.classes[0]) for name in samples]
    marks = marks_of(recognizer, samples, guesses)
    assert set(marks) == set(samples) - {"broken"}
    name, mark = next(iter(marks.items()))
    marked = mark(samples[name].open())
    assert marked.size == (96, 48)
    assert np.array_equal(np.asarray(marked)[:, :48], np.asarray(samples[name].open()))


def test_photographs_of_the_class_speak_for_it_and_others_against(run, photographs):
    recognizer = open_run(run)
    neighbours = Neighbours(run, recognizer)
    products = neighbours.products(describe(recognizer, squares(recognizer, photographs[:1])))
    (shares,) = neighbours.shares(products, [0])
    speaks_for, against = neighbours.speakers(shares, 3)
    assert {own.label for own in speaks_for} == {recognizer.classes[0]}
    assert recognizer.classes[0] not in {own.label for own in against}
    assert [own.share for own in speaks_for] == sorted((own.share for own in speaks_for), reverse=True)
    assert [own.share for own in against] == sorted(own.share for own in against)
    assert all(own.sample.open().size for own in (*speaks_for, *against))


def test_a_training_photograph_is_most_similar_to_itself(run):
    recognizer = open_run(run)
    neighbours = Neighbours(run, recognizer)
    samples = [sample for sample in neighbours.samples if sample is not None][:5]
    descriptors = describe(recognizer, [np.asarray(recognizer.model.preprocessing.fit(s.open())) for s in samples])
    found = neighbours.products(descriptors).cosines()
    assert found.argmax(1).tolist() == list(range(5))
    assert float(found.max()) <= 1 + 1e-5


def test_regions_of_an_image_and_its_mirror_image_are_averaged(run, photographs):
    recognizer = open_run(run)
    pictures = squares(recognizer, photographs[:2])
    split = split_scores(recognizer, pictures, [0, 1])
    mirrored = split_scores(recognizer, [picture[:, ::-1].copy() for picture in pictures], [0, 1])
    torch.testing.assert_close(mirrored.shares, split.shares.flip(-1), rtol=1e-3, atol=1e-5)
    assert split.adds_up
    torch.testing.assert_close(split.shares.sum((1, 2)), split.scores - split.bias, rtol=1e-3, atol=1e-4)


def test_the_command_writes_a_picture_per_image(run, photographs, tmp_path):
    copy = tmp_path / "elsewhere" / photographs[0].name
    copy.parent.mkdir()
    shutil.copy(photographs[0], copy)
    out = tmp_path / "out"
    done = run_command("explain", run, photographs[0], copy, "--class", "class_1", "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("explained: class_1") == 2
    names = {f"explain_{copy.stem}.png", f"explain_{copy.stem}_2.png"}
    assert {path.name for path in out.iterdir() if not path.name.startswith(".")} == names
    for name in names:
        with Image.open(out / name) as picture:
            assert picture.height > 800  # with both rows of training photographs
            assert np.asarray(picture.convert("RGB")).std() > 10


def test_what_is_missing_is_said_and_the_picture_made_without_it(run, photographs, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(run, moved)
    (moved / DUAL).unlink()
    done = run_command("explain", moved, photographs[0], "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert f"This run has no {DUAL}" in done.stderr
    shutil.copytree(run, tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "descriptors")
    assert "are gone from descriptors" in Neighbours(tmp_path / "again", open_run(run)).why_no_shares
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    done = run_command("explain", run, broken, photographs[0], "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "broken.png" in done.stderr
    assert "Written" in done.stdout


def test_an_ensemble_is_explained_without_training_photographs(run, photographs, tmp_path):
    member, notes = bcnn.load(run / "model.safetensors"), bcnn.read_notes(run / "model.safetensors")
    both = bcnn.save(bcnn.Ensemble([member, member]), tmp_path / "both.safetensors", notes={**notes, "temperature": 1})
    done = run_command("explain", both, photographs[0])
    assert done.returncode == 0, done.stderr
    assert "known for one network, not for an ensemble" in done.stderr
    assert (tmp_path / "explanations" / f"explain_{photographs[0].stem}.png").exists()


def test_other_descriptors_are_not_taken_for_those_of_the_run(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    recognizer = open_run(run)
    with torch.no_grad():
        next(recognizer.model.branches.parameters()).mul_(1.5)
    assert "are not those of this run" in Neighbours(tmp_path / "run", recognizer).why_no_shares


def test_a_dataset_that_is_gone_is_said_and_can_be_named(run, tmp_path):
    recognizer = open_run(run)
    pictures = run.parent / "pictures"
    pictures.rename(run.parent / "away")
    try:
        lost = Neighbours(run, recognizer)
        assert "is not where it was" in lost.why_no_photographs
        assert lost.why_no_shares == ""
        assert lost.samples == [None] * 24
        found = Neighbours(run, recognizer, spec=f"folder:{run.parent / 'away'}")
        assert found.why_no_photographs == ""
        with pytest.raises(ValueError, match="expected the dataset of the run"):
            Neighbours(run, recognizer, spec="textures")
    finally:
        (run.parent / "away").rename(pictures)
