"""`bcnn train`, `extract`, `predict`, `evaluate` through the entry point, with good and bad arguments."""

import csv
import json
import os
import shutil
import sys

import pytest
import yaml

from bcnn.cli import main
from tests.command import run_command as run
from tests.descriptors.images import draw, picture_folder

SMALL = ["--backbone", "tiny", "--weights", "none", "--size", "32"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p") / "pictures", classes=3, train=6, test=4)


@pytest.fixture(scope="module")
def trained(pictures):
    (pictures / "test" / "class_1" / "torn.png").write_bytes(b"\x89PNG")
    result = run("train", pictures, *SMALL, "--preset", "average,bcnn", cwd=pictures.parent)
    assert result.returncode == 0, result.stderr
    return result, pictures.parent / "runs" / "pictures_tiny_average-bcnn"


def test_train_tells_what_it_found_and_where_it_is(trained):
    result, folder = trained
    assert "1 of 31 images could not be read and were left out" in result.stdout
    assert "torn.png" in result.stdout
    assert "Difference in points" in result.stdout  # the comparison
    assert "bcnn: accuracy" in result.stdout
    assert {path.name for path in folder.iterdir() if path.name[0] != "."} == {
        "average", "bcnn", "comparison.csv", "comparison.md", "comparison.png", "config.yaml", "descriptors",
    }  # fmt: skip
    assert json.loads((folder / "bcnn" / "metrics.json").read_text())["num_test"] == 12


def test_the_run_is_repeated_from_its_own_file(trained, pictures, tmp_path):
    _, folder = trained
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config |= {"spec": str(pictures), "descriptors": str(folder / "descriptors"), "C": 3.5}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    result = run("train", "--config", tmp_path / "mine.yaml", "--out", tmp_path / "r", "--classifier", "logistic")
    assert result.returncode == 0, result.stderr
    again = yaml.safe_load((tmp_path / "r" / "config.yaml").read_text())
    assert again["C"] == 3.5  # from the file
    assert again["classifier"] == "logistic"  # from the command line
    assert again["preset"] == ["average", "bcnn"]
    (tmp_path / "bad.yaml").write_text("backbon: tiny\n")
    result = run("train", pictures, "--config", tmp_path / "bad.yaml")
    assert result.returncode == 2
    assert "unknown option 'backbon'; did you mean 'backbone'?" in result.stderr
    (tmp_path / "worse.yaml").write_text("- [\n")
    result = run("train", pictures, "--config", tmp_path / "worse.yaml")
    assert (result.returncode, "expected YAML" in result.stderr) == (2, True)


def test_predict_in_every_form(trained, pictures, tmp_path):
    _, folder = trained
    model = folder / "bcnn"
    image = pictures / "test" / "class_2" / "0.png"
    table = run("predict", model, image)
    assert table.returncode == 0, table.stderr
    assert all(f"class_{i}" in table.stdout for i in range(3))
    found = json.loads(run("predict", model, image, "--format", "json", "--top", 2).stdout)
    assert [len(entry["top"]) for entry in found] == [2]
    assert found[0]["image"] == str(image)
    names = f"{image}\n{pictures / 'test' / 'class_0' / '1.png'}\n"
    lines = list(csv.DictReader(run("predict", model, "-", "--format", "csv", stdin=names).stdout.splitlines()))
    assert len(lines) == 2
    assert float(lines[0]["probability1"]) == pytest.approx(found[0]["top"][0]["probability"], abs=1e-5)
    odd = tmp_path / "odd"
    draw(odd / "a [bold] b.png", 3)
    os.rename(odd / "a [bold] b.png", os.fsencode(odd) + b"/a [bold] \xff.png")
    draw(odd / "x" / "plain.png", 4)
    named = os.fsencode(odd) + b"/a [bold] \xff.png\n"
    assert json.loads(run("predict", model, "-", "--format", "json", stdin=named).stdout)[0]["top"]
    (odd / "zero.png").write_bytes(b"")
    (tmp_path / "how.yaml").write_text(f"format: json\nimages: {image}\n")
    assert json.loads(run("predict", model, "--config", tmp_path / "how.yaml").stdout)[0]["image"] == str(image)
    zeros = f"{image}\0{image}\0".encode()  # find -print0
    assert len(json.loads(run("predict", model, "-", "--format", "json", stdin=zeros).stdout)) == 2
    result = run("predict", model, odd, "x" * 5000)
    assert result.returncode == 1
    assert "a [bold]" in result.stdout
    assert "plain.png" in result.stdout
    assert "2 of 4 images could not be read" in result.stderr
    assert "zero.png" in result.stderr
    assert "Traceback" not in result.stderr


def test_evaluate(trained, pictures):
    _, folder = trained
    result = run("evaluate", folder / "bcnn", pictures)
    assert result.returncode == 0, result.stderr
    metrics = json.loads((folder / "bcnn" / "metrics.json").read_text())
    assert f"accuracy {100 * metrics['accuracy']:.1f} %" in result.stdout
    assert (folder / "bcnn" / "evaluate_folder_pictures_test" / "metrics.json").exists()
    assert "torn.png" in result.stdout
    strict = run("evaluate", folder / "bcnn", pictures, "--strict")
    assert (strict.returncode, "torn.png" in strict.stderr) == (2, True)


def test_folders_of_others_are_left_alone(trained, pictures, tmp_path):
    (tmp_path / "config.yaml").write_text("mine")
    for options in ((), ("--finetune", "--epochs", "1")):
        result = run("train", pictures, *SMALL, *options, "--out", tmp_path)
        assert result.returncode == 2
        assert "got one with 'config.yaml', which would be at risk; choose another --out" in result.stderr
    assert run("evaluate", trained[1] / "bcnn", pictures, "--out", tmp_path).returncode == 2
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("config.yaml", "mine")]


def test_evaluate_follows_no_links(trained, pictures, tmp_path):
    run_folder, target = tmp_path / "run", tmp_path / "precious"
    shutil.copytree(trained[1] / "bcnn", run_folder, ignore=shutil.ignore_patterns("evaluate_*"))
    target.mkdir()
    place = run_folder / "evaluate_folder_pictures_test"
    place.symlink_to(target)
    assert run("evaluate", run_folder, pictures).returncode == 2
    place.unlink()
    assert run("evaluate", run_folder, pictures).returncode == 0
    (place / "metrics.json").unlink()
    (target / "kept.json").write_text("kept")
    (place / "metrics.json").symlink_to(target / "kept.json")
    result = run("evaluate", run_folder, pictures)
    assert "expected no links" in result.stderr
    assert (target / "kept.json").read_text() == "kept"


def test_extract_goes_on(trained, pictures, tmp_path):
    for described in (0, 31):
        result = run("extract", pictures, *SMALL, "--out", tmp_path / "f")
        assert result.returncode == 0, result.stderr
        assert f"31 images, {described} of them described before" in result.stdout
    result = run("extract", pictures, *SMALL, "--eps", "0.5", "--out", tmp_path / "f")
    assert result.returncode == 2
    assert "model.head.pooling is 'bilinear' there, 'bilinear(eps=0.5)' now" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "cub:nowhere"], "which is not there"),
        (["train", "cubb:nowhere"], "did you mean 'cub'"),
        (["train", "PICTURES", "--preset", "best"], "unknown preset 'best'"),
        (["train", "PICTURES", "--backbone", "vgg61"], "unknown backbone 'vgg61'"),
        (["train", "PICTURES", *SMALL, "--classifier", "tree"], "unknown classifier 'tree'"),
        (["train", "PICTURES", *SMALL, "--C", "-1"], "C"),
        (["train", "PICTURES", "--precision", "fp8"], "float32, bf16"),
        (["train", "PICTURES", *SMALL, "--preset", "average,bcnn", "--eps", "0.1"], "a ridge for eps"),
        (["train", "PICTURES", "--device", "gpu"], "a device that is present"),
        (["train", "PICTURES", *SMALL, "--normalize", "matrix_root"], "matrix_root"),
        (["predict", "nowhere", "x.png"], "nowhere"),
        (["predict", "PICTURES", "x.png"], "make one with bcnn train"),
        (["evaluate", "PICTURES", "textures", "--split", "half"], "test, train or all"),
        (["extract", "PICTURES", *SMALL, "--out", "PICTURES"], "new, empty, or a folder of descriptors"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_2(arguments, message, pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bcnn", *(str(pictures) if word == "PICTURES" else word for word in arguments)])
    with pytest.raises(SystemExit) as ended:  # the entry point itself; a process each would take minutes
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.strip().startswith("bcnn: ")
    assert len(said.strip().splitlines()) == 1
    assert not list(tmp_path.glob("runs/*/model*"))
