"""`bcnn train --finetune` and `bcnn compare`, with good and bad arguments."""

import warnings

import pytest
import yaml

from bcnn.errors import GradientExceptionWarning
from tests.command import run_command
from tests.descriptors.images import picture_folder

SMALL = ["--backbone", "tiny", "--weights", "none", "--size", "32", "--preset", "bcnn"]
SHORT = ["--finetune", "--epochs", "2", "--lr", "0.02", "--batch-size", "6", "--val-share", "0.25"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p") / "pictures", classes=3, train=6, test=3)


def run(*arguments: object) -> tuple[int, str, str]:
    result = run_command(*arguments)
    return result.returncode, result.stdout, result.stderr


def test_train_again_from_the_run_folder_and_compare(pictures, tmp_path):
    code, out, err = run("train", pictures, *SMALL, *SHORT, "--lr-scale", "scorer=2", "--out", tmp_path / "a")
    assert code == 0, err
    assert "fine-tuned, epoch" in out
    assert "chosen on validation; before" in out
    written = yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())
    assert (written["finetune"], written["lr"], written["momentum"]) == (True, 0.02, 0.9)
    assert written["lr_scale"] == ["scorer=2"]

    code, _, err = run("train", "--config", tmp_path / "a" / "config.yaml", "--seed", "1", "--out", tmp_path / "b")
    assert code == 0, err
    again = yaml.safe_load((tmp_path / "b" / "config.yaml").read_text())
    assert again == {**written, "seed": 1}

    options = ("--recipe", "paper", "--epochs", "1", "--val-share", "0.2")
    code, _, err = run("train", "--config", tmp_path / "a" / "config.yaml", *options, "--out", tmp_path / "c")
    assert code == 0, err
    papers = yaml.safe_load((tmp_path / "c" / "config.yaml").read_text())
    assert (papers["lr_scale"], papers["decay_scale"]) == (["scorer=1000"], ["scorer=0"])  # before the file's
    assert (papers["epochs"], papers["val_share"], papers["init_c"]) == (1, 0.2, 10)

    code, out, err = run("compare", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "table")
    assert code == 0, err
    assert "2 epochs" in out
    assert " ± " in out
    assert {p.name for p in (tmp_path / "table").iterdir()} == {"comparison.csv", "comparison.md", "comparison.png"}

    code, _, err = run("train", "--config", tmp_path / "a" / "config.yaml", "--out", tmp_path / "a", "--lr", "0.5")
    assert code == 2
    assert "lr 0.02 instead of 0.5" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", "3"], "--epochs needs --finetune"),
        (["--lr", "0.1"], "--lr needs --finetune"),
        (["--no-resume"], "--no-resume needs --finetune"),
        (["--finetune", "--lr", "0"], "expected --lr > 0, got 0.0; the default is 0.001"),
        (["--finetune", "--momentum", "1"], "expected --momentum >= 0 and < 1"),
        (["--finetune", "--schedule", "cosin"], "schedule 'cosin'; did you mean 'cosine'"),
        (["--finetune", "--select-on", "train"], "select_on 'train'"),
        (["--finetune", "--lr-scale", "conv1"], "lr_scale such as 'conv5=0.1', got 'conv1'"),
        (["--finetune", "--lr-scale", "conv7=2"], "lr_scale 'conv7'"),
        (["--finetune", "--decay-scale", "conv7=2"], "decay_scale 'conv7'"),
        (["--finetune", "--recipe", "papr"], "recipe 'papr'; did you mean 'paper'"),
        (["--recipe", "paper"], "--recipe needs --finetune"),
        (["--finetune", "--freeze-until", "conv7"], "layer to freeze until 'conv7'"),
        (["--finetune", "--on-nonfinite", "hope"], "on_nonfinite 'hope'"),
        (["--finetune", "--val-share", "1"], "expected --val-share >= 0 and < 1"),
        (["--finetune", "--warmup-epochs", "60"], "expected warmup_epochs below epochs"),
        (["--finetune", "--backward", "svd"], "expected a preset with a matrix function for backward"),
        (["--finetune", "--init-C", "-1"], "expected --init-C > 0"),
        (["--finetune", "--precision", "fp4"], "precision 'fp4'; Available: float32, bf16"),
    ],
)
def test_bad_options_are_refused_by_name(pictures, tmp_path, options, message):
    code, _, err = run("train", pictures, *SMALL, "--out", tmp_path / "run", *options)
    assert code == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_a_warning_of_ours_is_one_line():
    run("--version")
    said = warnings.formatwarning(GradientExceptionWarning("finetune: skipped."), GradientExceptionWarning, "file", 1)
    assert said == "bcnn: finetune: skipped.\n"
    assert "UserWarning" in warnings.formatwarning("other", UserWarning, "file", 1)


def test_a_bad_file_names_the_field(pictures, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(f"spec: {pictures}\nfinetune: true\nepochs: 2\nlearning_rate: 1\n")
    code, _, err = run("train", "--config", path)
    assert code == 2
    assert "unknown option 'learning_rate'" in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lr: [1]", "expected lr to be a number, got [1]; the default is 0.001"),
        ("clip: yes", "expected clip to be a number, got True"),
        ("epochs: true", "expected epochs to be a whole number, got True"),
        ("epochs: 2.5", "expected epochs to be a whole number, got 2.5"),
        ("epochs: 0", "expected epochs >= 1, got 0"),
        ("schedule: cosin", "unknown schedule 'cosin'; did you mean 'cosine'"),
        ("flips: 3", "expected flips to be true or false, got 3"),
    ],
)
def test_a_bad_value_in_a_file_names_the_field(pictures, tmp_path, line, message):
    path = tmp_path / "bad.yaml"
    path.write_text(f"spec: {pictures}\nfinetune: true\n{line}\n")
    code, _, err = run("train", "--config", path)
    assert code == 2
    assert f"{path}: {message}" in err


def test_compare_wants_finished_runs(tmp_path):
    code, _, err = run("compare", tmp_path)
    assert code == 2
    assert "has no metrics.json" in err


def test_help_names_the_papers_values():
    code, out, _ = run("train", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert code == 0
    assert "0.001 is the paper's" in text
    assert "50 to 100" in text
