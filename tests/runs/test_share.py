"""`bcnn push` and `bcnn pull` with the Hub's own client, against a server of its protocol on loopback."""

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

import bcnn
from bcnn.runs import share
from tests.command import run_command
from tests.descriptors.images import picture_folder
from tests.hub import serving

REPO = "somebody/stripes"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("secret") / "my_private_folder", classes=3, train=6, test=3)


@pytest.fixture(scope="module")
def run(pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("r") / "run"
    (pictures / "train" / "class_0" / "broken_secret.png").write_bytes(b"no image")
    small = ("--backbone", "tiny", "--weights", "none", "--size", "32", "--descriptors", out.parent / "my_descriptors")
    assert run_command("train", pictures, *small, "--out", out).returncode == 0
    return out


@pytest.fixture
def hub(monkeypatch, tmp_path):
    import huggingface_hub.constants

    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture
def pushed(hub, run):
    done = run_command("push", run, REPO, "--licence", "mit")
    assert done.returncode == 0, done.stderr
    return hub


def test_a_run_goes_there_and_back(pushed, run, pictures, tmp_path):
    assert sorted(pushed.repos[REPO]) == ["README.md", "checksums.json", "metrics.json", "model.safetensors"]
    done = run_command("pull", REPO, "--out", tmp_path / "back")
    assert done.returncode == 0, done.stderr
    assert "3 classes, accuracy" in done.stdout
    said = [
        run_command("predict", where, pictures / "test", "--format", "json").stdout
        for where in (run, tmp_path / "back")
    ]
    assert json.loads(said[0]) == json.loads(said[1])
    assert run_command("evaluate", tmp_path / "back", pictures).returncode == 0
    again = run_command("push", run, REPO)  # a model that is there gets a new version
    assert again.returncode == 0, again.stderr
    refused = run_command("pull", REPO, "--out", tmp_path / "back")
    assert refused.returncode == 2
    assert "with a model in it; choose another --out" in refused.stderr


def test_what_is_sent_says_nothing_of_the_sender(pushed, run, pictures):
    files = pushed.repos[REPO]
    secrets = ["my_private_folder", "my_descriptors", "broken_secret", str(Path.home()) + os.sep, str(run), "0.png"]
    for name, content in files.items():
        for secret in secrets:
            assert secret.encode() not in content, (name, secret)
    before = bcnn.read_notes(run / "model.safetensors")
    assert "my_private_folder" in json.dumps(before["config"])  # so that there was something to leave out


def test_the_card_says_how_good_and_how_to_use(pushed, run):
    card = pushed.repos[REPO]["README.md"].decode()
    metrics = json.loads((run / "metrics.json").read_text())
    low, high = (100 * edge for edge in metrics["interval95"])
    assert card.startswith("---\nlicense: mit\nlibrary_name: bcnn\n")
    assert f"accuracy {100 * metrics['accuracy']:.1f} %, 95 % interval {low:.1f} to {high:.1f} %" in card
    assert f"bcnn pull {REPO}" in card
    assert "`class_0`, `class_1`, `class_2`" in card
    assert "licence of this model as `mit`" in card


def test_private_and_tokens(hub, run):
    hub.token = "hf_other"
    refused = run_command("push", run, "somebody/hidden", "--private")
    assert refused.returncode == 2
    assert "log in with `hf auth login`, or set HF_TOKEN" in refused.stderr
    hub.token = "hf_test"
    assert run_command("push", run, "somebody/hidden", "--private").returncode == 0
    assert hub.private == {"somebody/hidden"}


def changed(content: bytes) -> bytes:
    return content[:-4] + bytes(255 - byte for byte in content[-4:])


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda hub, files: files.update({"model.safetensors": changed(files["model.safetensors"])}), "damaged"),
        (lambda hub, files: files.pop("model.safetensors"), "expected a model of bcnn push, with a model.safetensors"),
        (lambda hub, files: hub.said_size.update({"model.safetensors": 10**13}), "at most 8.6 GB, got 10000.0 GB"),
        (lambda hub, files: hub.said_sha.update({"model.safetensors": "0" * 64}), "checksum that the Hub names"),
        (lambda hub, files: files.update({"checksums.json": b"[]"}), "expected checksums as JSON"),
        (lambda hub, files: files.update({"metrics.json": b"{}"}), "damaged"),
        (lambda hub, files: (files.update({"metrics.json": b"{}"}), files.pop("checksums.json")), "metrics of a run"),
        (lambda hub, files: (files.update({"model.safetensors": b"\x80\x04pickle"}), files.pop("checksums.json")),
         "expected a run of bcnn"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_and_nothing_stays(pushed, tmp_path, harm, said):
    harm(pushed, pushed.repos[REPO])
    refused = run_command("pull", REPO, "--out", tmp_path / "back")
    assert refused.returncode == 2
    assert said in refused.stderr
    assert not (tmp_path / "back").exists()


def test_other_files_stay_where_they_are(pushed, tmp_path):
    files = pushed.repos[REPO]
    files |= {"../escape.txt": b"x", "evil.py": b"print(1)", "model.pkl": b"x", "sub/model.safetensors": b"x"}
    assert run_command("pull", REPO, "--out", tmp_path / "back").returncode == 0
    ours = {path.name for path in (tmp_path / "back").iterdir() if not path.name.startswith(".")}
    assert ours == {"README.md", "checksums.json", "metrics.json", "model.safetensors"}
    assert not [one for one in pushed.requests if "evil" in one or "escape" in one or "pkl" in one]
    with safe_open(tmp_path / "back" / "model.safetensors", framework="pt") as file:
        assert file.metadata()["format"] == "bcnn-model"


@pytest.mark.parametrize("repo", ["stripes", "a/b/c", "../x", "a/../b", "http://x/y", "a/b c", "/a", ""])
def test_bad_names(hub, run, repo):
    for command in (("push", run, repo), ("pull", repo)):
        refused = run_command(*command)
        assert refused.returncode == 2
        assert "expected a model's name as user/name" in refused.stderr or "Usage" in refused.stderr
    assert hub.requests == []


def test_a_model_that_is_not_there_and_a_server_that_is_not_there(hub, tmp_path, monkeypatch):
    refused = run_command("pull", "somebody/nothing", "--out", tmp_path / "back")
    assert refused.returncode == 2
    assert "expected the Hub to answer for somebody/nothing" in refused.stderr
    assert "look at the spelling" in refused.stderr
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    refused = run_command("pull", "somebody/nothing", "--out", tmp_path / "back")
    assert refused.returncode == 2
    assert "look at the connection" in refused.stderr


def test_a_missing_package_and_a_folder_without_a_run(tmp_path, monkeypatch, run):
    refused = run_command("push", tmp_path, REPO)
    assert refused.returncode == 2
    assert "expected a run folder with a model.safetensors" in refused.stderr
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused = run_command("push", run, REPO)
    assert "pip install 'bcnn[hub]'" in refused.stderr


def test_a_path_in_a_class_name_is_noticed(run, tmp_path):
    model = bcnn.load(run / "model.safetensors")
    notes = bcnn.read_notes(run / "model.safetensors")
    notes["classes"] = [f"{Path.home()}/photos/a", "b", "c"]
    place = bcnn.save(model, tmp_path / "model.safetensors", notes=notes)
    with pytest.raises(ValueError, match="expected nothing about this machine"):
        share.prepare(place, REPO, _made(tmp_path / "sent"))


def test_files_of_an_ensemble(run, tmp_path):
    member = bcnn.load(run / "model.safetensors")
    notes = bcnn.read_notes(run / "model.safetensors")
    both = bcnn.save(bcnn.Ensemble([member, member]), tmp_path / "model.safetensors", notes=notes)
    folder = _made(tmp_path / "sent")
    share.prepare(both, REPO, folder)
    sums = json.loads((folder / "checksums.json").read_text())
    assert sums["model.safetensors"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert bcnn.load(folder / "model.safetensors").kind == "ensemble"
    assert (folder / "README.md").read_text().count("started from") == 2


def test_paths_are_left_out_wherever_they_stand():
    given = {"spec": "cub:/data/me/CUB", "weights": "~/x.safetensors", "descriptors": "/a", "backbone": "timm/resnet18"}
    kept = share.without_paths({**given, "more": [{"weights": "C:\\me\\w"}], "C": 1.0, "list": ("l2", 3)})
    assert kept == {"spec": "cub", "weights": "(a path)", "backbone": "timm/resnet18",
                    "more": [{"weights": "(a path)"}], "C": 1.0, "list": ["l2", 3]}  # fmt: skip
    assert share.without_paths({"spec": "my_photos"}) == {"spec": "folder"}
    assert share.without_paths({"spec": "textures"})["spec"] == "textures"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
