"""`bcnn reproduce` and `bcnn report`, with good and bad arguments."""

import pytest

from bcnn.cli.reproduce import _split
from bcnn.experiments import EXPERIMENTS
from bcnn.experiments.results import Results
from tests.command import run_command
from tests.descriptors.images import picture_folder

SMALL = ["--networks", "tiny", "--weights", "none", "--size", "32"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p") / "pictures", classes=3, train=6, test=4)


def test_list_names_every_artifact():
    out = run_command("reproduce", "--list").stdout
    assert all(name in out for name in EXPERIMENTS)


def test_several_datasets_after_one_option(pictures, tmp_path):
    result = run_command(
        "reproduce", "table1_normalization", "--data", f"cub=folder:{pictures}", f"mine={pictures}", *SMALL,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "30 images and their flips to describe" in result.stdout
    assert "table1_normalization" in result.stdout
    results = Results(tmp_path / "out" / "results.jsonl")
    assert [subject.dataset for subject in results.subjects] == ["cub", "mine"]
    assert len(results.measurements) == 10
    assert "Birds, 3 of 200 classes" in (tmp_path / "out" / "report.md").read_text()

    again = run_command(
        "reproduce", "table1_normalization", f"cub=folder:{pictures}", *SMALL, "--out", tmp_path / "out"
    )
    assert again.returncode == 0, again.stderr
    assert "In all 0 steps" in again.stdout

    page = tmp_path / "page.html"
    result = run_command("report", tmp_path / "out", "--out", page)
    assert result.returncode == 0, result.stderr
    assert page.with_suffix(".tex").exists()


def test_results_without_mirror_images_stand_beside_the_others(pictures, tmp_path):
    command = ["reproduce", "table1_normalization", f"cub=folder:{pictures}", *SMALL, "--out", tmp_path]
    for flips in ([], ["--no-flips"]):
        result = run_command(*command, *flips)
        assert result.returncode == 0, result.stderr
    assert "30 images to describe" in result.stdout
    assert len(Results(tmp_path / "results.jsonl").measurements) == 10
    assert "32 px, weights none, without mirror images**" in (tmp_path / "report.md").read_text()


def test_a_plan_alone_measures_nothing(pictures, tmp_path):
    out = tmp_path / "out"
    options = [*SMALL, "--epochs", "2", "--plan", "--no-finetune", "--out", out]
    result = run_command("reproduce", "all", f"cub=folder:{pictures}", *options)
    assert result.returncode == 0, result.stderr
    assert "need fine-tuning and are left out" in result.stdout
    assert not out.exists()


def test_smoke_needs_no_data(tmp_path):
    """`make smoke` runs all of them."""
    result = run_command("reproduce", "table1_normalization", "--smoke", "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "report.md").read_text()
    assert "textures, 14 classes" in text
    assert "sqrt + sgnsqrt" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table1_normalisation"], "artifact 'table1_normalisation'; did you mean 'table1_normalization'"),
        (["table1_normalization"], "expected --data NAME=PATH"),
        (["cub=/nowhere"], "expected an ARTIFACT"),
        (["table1_normalization", "--data", "cub"], "--data: expected NAME=PATH"),
        (["table1_normalization", "--data", "cub=/nowhere"], "nowhere"),
        (["table1_normalization", "cub=PICTURES", "--networks", "vgg17"], "'vgg17'"),
        (["table2_finetuning", "cub=PICTURES", "--seeds", "one"], "expected --seeds to be a whole number, got 'one'"),
        (["table1_normalization", "cub=PICTURES", "--device", "abacus"], "--device: expected a device"),
        (["table1_normalization", "cub=PICTURES", "cub=PICTURES"], "expected each dataset once, got cub twice"),
        (["table1_normalization", "../x=PICTURES"], "--data: expected NAME=PATH"),
        (["table1_normalization", "cub=PICTURES", "--smoke"], "--smoke: expected no dataset, network or size"),
        (["table1_normalization", "--smoke", "--networks", "alexnet"], "it has its own, got --networks"),
        (["table1_normalization", "cub=PICTURES", "--reuse", "/nowhere"], "--reuse: expected a folder of runs"),
        (["all", "table9", "cub=PICTURES"], "artifact 'table9'"),
    ],
)
def test_bad_arguments_are_told_in_a_line(pictures, tmp_path, arguments, message):
    given = [word.replace("PICTURES", f"folder:{pictures}") for word in arguments]
    result = run_command("reproduce", *given, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_may_be_called_like_its_dataset():
    data = ["cub=cub", "cars=folder:cars", "mine=aircraft", "textures=textures,per_class=3"]
    _, specs = _split(["all"], data)
    expected = {"cub": "cub:cub", "cars": "folder:cars", "mine": "aircraft", "textures": "textures,per_class=3"}
    assert specs == expected


def test_report_of_nothing_is_refused(tmp_path):
    result = run_command("report", tmp_path, "--out", tmp_path / "report.html")
    assert result.returncode == 2
    assert "expected folders with results.jsonl" in result.stderr
    assert not (tmp_path / "report.html").exists()


def test_a_file_in_the_place_of_the_folder_is_refused_first(pictures, tmp_path):
    (tmp_path / "out").write_text("mine")
    result = run_command("reproduce", "table1_normalization", f"cub=folder:{pictures}", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "--out: expected a folder" in result.stderr
    assert (tmp_path / "out").read_text() == "mine"


def test_a_folder_may_have_a_dot_and_a_page_must_be_html(pictures, tmp_path):
    out = tmp_path / "v1.0"
    result = run_command("reproduce", "gradient_precision", "t=textures,per_class=3", *SMALL, "--plan", "--out", out)
    assert result.returncode == 0, result.stderr
    result = run_command("reproduce", "table1_normalization", f"mine={pictures}", *SMALL, "--out", out)
    assert result.returncode == 0, result.stderr
    assert (out / "report.html").exists()
    result = run_command("report", out, "--out", tmp_path / "page.md")
    assert result.returncode == 2
    assert "ends with .html" in result.stderr


def test_no_path_of_weights_in_results(pictures, tmp_path):
    import bcnn

    model = bcnn.build_model("bcnn", backbone="tiny", weights=None, size=32)
    bcnn.save(model, tmp_path / "mine.safetensors")
    small = ["--networks", "tiny", "--weights", tmp_path / "mine.safetensors", "--size", "32"]
    result = run_command("reproduce", "table1_normalization", f"cub=folder:{pictures}", *small, "--out", tmp_path / "o")
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "o" / "results.jsonl").read_text() + (tmp_path / "o" / "report.html").read_text()
    assert str(tmp_path) not in text
    assert "weights mine.safetensors" in text
