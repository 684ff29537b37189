"""From a dataset to a fine-tuned run folder."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from bcnn.data.contract import TEST, TRAIN, Sample
from bcnn.descriptors.team import Team
from bcnn.files import read_csv
from bcnn.finetune.config import FinetuneConfig
from bcnn.finetune.engine import start
from bcnn.models.files import load
from bcnn.report import curves
from bcnn.report import finetune as report
from bcnn.runs import config as configs
from bcnn.runs import finetune as runs
from bcnn.runs.config import RunConfig
from bcnn.runs.predict import open_run, predict
from tests.descriptors.images import draw, picture_folder
from tests.finetune.tasks import assert_same, quiet

TUNING = FinetuneConfig(epochs=3, lr=0.05, batch_size=6, val_share=0.25)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p"), classes=3, train=8, test=3)


def config_for(spec, tuning=TUNING, **options) -> RunConfig:
    small = {"backbone": "tiny", "weights": None, "size": 32, "preset": ("bcnn",)}
    return RunConfig(**{"spec": str(spec), **small, **options}, finetune=tuning)


def run(config, out, *, resume=True, precision="float32", progress=quiet):
    results, _ = runs.finetune(config, out, start(precision=precision), resume=resume, team=Team(), progress=progress)
    return results


@pytest.fixture(scope="module")
def plain(pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "run"
    (result,) = run(config_for(pictures), out)
    return out, result


def draw_waves(path, label, seed, *, side=32, classes=6):
    """Red and blue waves in noise; how far the one lies behind the other tells the class, and nothing else does."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side]
    turn, phase = random.uniform(-1, 1), random.uniform(0, 2 * np.pi)
    red = 2 * np.pi * 5 * (np.cos(turn) * rows + np.sin(turn) * columns) / side + phase
    blue = red + 2 * np.pi * label / classes
    pixels = 60 * np.stack([np.sin(red), random.normal(size=red.shape), np.sin(blue)], -1)
    pixels += 128 + random.normal(0, 40, pixels.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


def test_a_tiny_network_learns(tmp_path):
    """Six classes that random filters tell apart badly.

    40.8 % before and 99 to 100 % after, on an AMD EPYC with AVX2, without vector instructions, and with two threads.
    """
    seed = 0
    for label in range(6):
        for split, count in ((TRAIN, 24), (TEST, 20)):
            for i in range(count):
                draw_waves(tmp_path / "waves" / split / str(label) / f"{i}.png", label, seed := seed + 1)
    tuning = FinetuneConfig(epochs=10, lr=0.2, val_share=0.2)
    options = {"preset": ("improved_bcnn",), "flips": False}  # a flip would turn the lag round
    config = config_for(tmp_path / "waves", tuning, **options)
    (result,) = run(config, tmp_path / "run")
    assert result.metrics.finetune.before.accuracy < 0.52
    assert result.metrics.test.accuracy > 0.80
    history = result.metrics.finetune.history
    assert history[-1].train_loss < 0.7 * history[1].train_loss
    assert history[-1].val_loss < 0.9 * history[0].val_loss


def test_everything_is_in_the_run_folder(plain):
    out, result = plain
    names = {path.name for path in out.iterdir() if path.name[0] != "."}
    assert names == {
        "config.yaml", "metrics.json", "predictions.csv", "model.safetensors", "dual.safetensors", "confusion.png",
        "mistakes.png", "curves.png", "epochs.csv", "steps.csv", "last.safetensors", "best.safetensors", "tensorboard",
        "descriptors",
    }  # fmt: skip
    assert any(path.name.startswith("events") for path in (out / "tensorboard").iterdir())
    tuned = result.metrics.finetune
    assert tuned.selected_on == "validation"
    assert len(tuned.history) == 4
    assert tuned.best_epoch in range(4)
    assert 0 <= tuned.before.accuracy <= 1
    assert 0 <= tuned.softmax.accuracy <= 1
    assert tuned.num_skipped == 0


def test_the_model_predicts_what_the_run_says(plain, pictures):
    out, _ = plain
    recognizer = open_run(out)
    stored = {row["image"]: row for row in read_csv(out / "predictions.csv")}
    names = sorted(stored)
    for name, found in zip(names, predict(recognizer, [pictures / name for name in names]), strict=True):
        assert found.top[0][0] == stored[name]["class1"]
        assert found.top[0][1] == pytest.approx(float(stored[name]["probability1"]), abs=2e-4)


def test_the_backbone_is_the_best_epochs(plain):
    out, _ = plain
    tuned, best = load(out / "model.safetensors"), load(out / "best.safetensors")
    assert_same(tuned.backbone.state_dict(), best.backbone.state_dict())


def test_the_configuration_can_be_run_again_from_the_run_folder(plain, tmp_path):
    out, _ = plain
    config = configs.from_plain(configs.read(out / "config.yaml"))
    run(config, tmp_path)
    assert_same(load_file(out / "model.safetensors"), load_file(tmp_path / "model.safetensors"))


def test_a_finished_run_is_shown_and_not_done_again(plain, pictures):
    out, result = plain
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    (again,) = run(config_for(pictures), out)
    assert again.metrics == result.metrics
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == before


def test_another_configuration_is_refused(plain, pictures):
    out, _ = plain
    with pytest.raises(ValueError, match=r"lr 0.05 instead of 0.1"):
        run(config_for(pictures, replace(TUNING, lr=0.1)), out)


def test_the_test_split_is_opened_when_training_is_done(pictures, tmp_path, monkeypatch):
    opened, trained = [], []
    original, descend = Sample.open, runs.descend
    monkeypatch.setattr(Sample, "open", lambda self: (opened.append(self.split), original(self))[1])

    def train(*arguments, **options):
        progress = descend(*arguments, **options)
        trained.append(Counter(opened))
        return progress

    monkeypatch.setattr(runs, "descend", train)
    run(config_for(pictures), tmp_path)
    (before,) = trained
    assert before[TRAIN] > 0
    assert before[TEST] == 0
    assert Counter(opened)[TEST] > 0


def test_choosing_on_the_test_split_is_said_in_every_output(pictures, tmp_path, monkeypatch):
    titles = []
    plot = curves.plot
    monkeypatch.setattr(curves, "plot", lambda *a, **k: (titles.append(k["selected_on"]), plot(*a, **k)))
    tuning = replace(TUNING, select_on="test")
    results = run(config_for(pictures, tuning, preset=("bcnn", "improved_bcnn")), tmp_path)
    assert titles == ["test", "test"]
    assert all(result.metrics.finetune.selected_on == "test" for result in results)
    (title,) = {record["title"] for record in report.records_of([result.metrics for result in results])}
    assert "CHOSEN ON THE TEST SPLIT" in title
    assert "CHOSEN ON THE TEST SPLIT" in (tmp_path / "comparison.md").read_text()
    assert configs.read(tmp_path / "config.yaml")["select_on"] == "test"
    assert {row["held_out"] for row in read_csv(tmp_path / "bcnn" / "epochs.csv")} == {"test"}


def test_stored_output_of_frozen_layers_changes_nothing_and_is_computed_once(pictures, tmp_path, monkeypatch):
    opened = []
    original = Sample.open
    monkeypatch.setattr(Sample, "open", lambda self: (opened.append(self.name), original(self))[1])
    tuning = replace(TUNING, freeze_until="relu2", memory_gb=0.0)
    counts = []
    for cache in (True, False):
        opened.clear()
        run(config_for(pictures, replace(tuning, cache_frozen=cache)), tmp_path / str(cache))
        counts.append(len(opened))
        assert not (tmp_path / str(cache) / "frozen_maps").exists()  # removed when all is done
    first, second = (load_file(tmp_path / name / "last.safetensors") for name in ("True", "False"))
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-4, atol=1e-6)
    assert counts[0] < counts[1] - 3 * 18  # three epochs of images that were not decoded
    frozen = load(tmp_path / "True" / "model.safetensors").config.branches[0].freeze_until
    assert frozen == "relu2"


@pytest.mark.parametrize(
    "options",
    [
        {"preset": ("o2p",), "backward": "loewner"},
        {"normalize": ("matrix_power(0.3)", "signed_sqrt", "l2"), "preset": ("improved_bcnn",), "backward": "loewner"},
        {"normalize": ("matrix_power(0.5, learnable=True)", "signed_sqrt", "l2"), "preset": ("improved_bcnn",)},
        {"preset": ("improved_bcnn",), "forward": "newton_schulz", "backward": "unrolled", "num_iters": 5},
        {"preset": ("improved_bcnn",), "backward": "identity"},
        {"preset": ("improved_bcnn",), "precision": "bf16"},
        {"preset": ("average",)},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_other_normalizations_and_precisions_train_without_a_nan(pictures, tmp_path, options):
    (result,) = run(config_for(pictures, **options), tmp_path, precision=options.get("precision", "float32"))
    tuned = result.metrics.finetune
    assert tuned.num_skipped == tuned.num_gradient_exceptions == 0
    assert all(value.isfinite().all() for value in load_file(tmp_path / "last.safetensors").values())
    best, model = (load_file(tmp_path / f"{name}.safetensors") for name in ("best", "model"))
    for name in best:
        assert "scorer" in name or torch.equal(best[name], model[name]), name  # a learned exponent, too
    steps = read_csv(tmp_path / "steps.csv")
    assert {float(row["gradient_norm"]) > 0 for row in steps} == {True}


def test_methods_by_name_reach_the_head(pictures):
    config = config_for(pictures, preset=("bcnn", "improved_bcnn"), backward="svd", forward="svd")
    assert config.head("improved_bcnn").normalize[0] == "matrix_sqrt(forward='svd', backward='svd')"
    assert config.head("bcnn").normalize == ("signed_sqrt", "l2")
    with pytest.raises(ValueError, match="expected a preset with a matrix function for backward, got bcnn"):
        config_for(pictures, backward="svd")
    with pytest.raises(ValueError, match="backward 'lyapunof'"):
        config_for(pictures, preset=("improved_bcnn",), backward="lyapunof")
    with pytest.raises(ValueError, match="lyapunov"):
        config_for(pictures, preset=("o2p",), backward="lyapunov")


@pytest.mark.parametrize("select_on", ["validation", "test"])
def test_broken_images_are_named_and_left_out(tmp_path, select_on):
    root = picture_folder(tmp_path / "pictures", classes=2, train=5, test=3)
    for split in ("train", "test"):
        (root / split / "class_1" / "2.png").write_bytes(b"nothing")
    config = config_for(root, replace(TUNING, select_on=select_on))
    (result,), done = runs.finetune(config, tmp_path / "run", start(), team=Team(), progress=quiet)
    names = {f"{split}/class_1/2.png" for split in ("train", "test")}
    assert set(done.broken) == set(result.metrics.broken) == names
    assert (result.metrics.num_train, result.metrics.test.num_test) == (9, 5)


def test_two_presets_share_no_weights(pictures, tmp_path):
    first, second = run(config_for(pictures, preset=("bcnn", "improved_bcnn")), tmp_path / "both")
    (alone,) = run(config_for(pictures, preset=("improved_bcnn",)), tmp_path / "alone")
    assert_same(load_file(second.folder / "last.safetensors"), load_file(alone.folder / "last.safetensors"))
    assert (first.preset, second.preset) == ("bcnn", "improved_bcnn")
    assert {"comparison.csv", "comparison.md", "comparison.png"} <= {p.name for p in (tmp_path / "both").iterdir()}


def test_without_test_images(tmp_path):
    root = picture_folder(tmp_path / "pictures", classes=2, train=5, test=0)
    lines = [f"{path},{path.parent.name},train" for path in sorted(root.rglob("*.png"))]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["path,label,split", *lines]))
    (result,) = run(config_for(table), tmp_path / "run")
    assert result.metrics.test is None
    assert result.metrics.finetune.before.accuracy is None


def test_beginning_anew_forgets_the_results_first(pictures, tmp_path):
    run(config_for(pictures), tmp_path)

    def progress(stage, done, total, note=""):
        if "training" in stage and done > 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config_for(pictures), tmp_path, resume=False, progress=progress)
    assert not (tmp_path / "metrics.json").exists()
    stages = []
    (result,) = run(config_for(pictures), tmp_path, progress=lambda stage, done, total, note="": stages.append(stage))
    assert result.metrics.finetune.num_sessions == 2
    assert not any("logistic" in stage for stage in stages)  # the checkpoint holds that layer


def test_a_training_that_has_begun_keeps_its_configuration(pictures, tmp_path):
    def progress(stage, done, total, note=""):
        if "training" in stage and done > 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config_for(pictures), tmp_path, progress=progress)
    before = (tmp_path / "config.yaml").read_text()
    with pytest.raises(ValueError, match=r"momentum 0\.9 instead of 0\.5"):
        run(config_for(pictures, replace(TUNING, momentum=0.5)), tmp_path)
    assert (tmp_path / "config.yaml").read_text() == before
    run(config_for(pictures, replace(TUNING, momentum=0.5)), tmp_path, resume=False)


def test_one_image_a_class_leaves_nothing_to_choose_by(tmp_path):
    root = picture_folder(tmp_path / "pictures", classes=3, train=1, test=2)
    (result,) = run(config_for(root), tmp_path / "run")
    assert result.metrics.finetune.selected_on == "nothing: last epoch"
    assert result.metrics.finetune.best_epoch == TUNING.epochs


@pytest.mark.parametrize("wrong", [{"freeze_until": "conv9"}, {"lr_scale": ("conv9=1",)}])
def test_wrong_names_are_refused_before_the_long_work(pictures, tmp_path, wrong):
    with pytest.raises(ValueError, match="conv9"):
        run(config_for(pictures, replace(TUNING, **wrong)), tmp_path)
    assert not (tmp_path / "descriptors").exists()


def test_killed_before_the_comparison_was_written(pictures, tmp_path):
    run(config_for(pictures, preset=("bcnn", "improved_bcnn")), tmp_path)
    (tmp_path / "comparison.csv").unlink()
    (tmp_path / "bcnn" / "tuned_descriptors").mkdir()
    run(config_for(pictures, preset=("bcnn", "improved_bcnn")), tmp_path)
    assert (tmp_path / "comparison.csv").exists()
    assert not (tmp_path / "bcnn" / "tuned_descriptors").exists()


def test_a_place_that_cannot_be_written_to(pictures, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"expected to make the folder .*file, got: .*; choose another --out"):
        run(config_for(pictures), tmp_path / "file")


def other_picture(root, split):
    """Put another picture under the name of one that was there."""
    path = sorted((root / split).rglob("*.png"))[0]
    draw(path, seed=999, stripes=9)


@pytest.mark.parametrize("split", [TRAIN, TEST])
def test_results_of_images_that_have_changed_are_not_shown(tmp_path, split):
    root = picture_folder(tmp_path / "pictures", classes=3, train=4, test=2)
    tuning = replace(TUNING, epochs=1)
    run(config_for(root, tuning), tmp_path / "run")
    other_picture(root, split)
    with pytest.raises(ValueError, match=r"images .* have changed since; choose another --out, or .* --no-resume"):
        run(config_for(root, tuning), tmp_path / "run")
    (result,) = run(config_for(root, tuning), tmp_path / "run", resume=False)
    assert run(config_for(root, tuning), tmp_path / "run")[0].metrics == result.metrics


def test_a_training_does_not_go_on_with_other_images(tmp_path):
    root = picture_folder(tmp_path / "pictures", classes=3, train=8, test=2)

    def progress(stage, done, total, note=""):
        if "training" in stage and done > 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config_for(root), tmp_path / "run", progress=progress)
    other_picture(root, TEST)  # they are not looked at before training is over
    with pytest.raises(KeyboardInterrupt):
        run(config_for(root), tmp_path / "run", progress=progress)
    other_picture(root, TRAIN)
    with pytest.raises(ValueError, match=r"got content .*--no-resume"):
        run(config_for(root), tmp_path / "run")
