"""Files that ask for more than they hold, or say what cannot be: refused in words, and nothing is allocated."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import bcnn
from bcnn.runs.predict import open_run
from tests.descriptors.images import network

NOTES = {"classes": list("abc"), "temperature": 0.5}


@pytest.fixture
def path(tmp_path):
    return bcnn.save(network(num_classes=3, proj_dim=6), tmp_path / "m.safetensors", notes=NOTES)


def rewrite(path, *, config=None, notes=None):
    """The same tensors under another header."""
    with safe_open(path, framework="pt") as file:
        about = {key: value for key, value in file.metadata().items() if key != "crc32"}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    content = json.loads(about["config"])
    about["config"] = json.dumps(config(content) or content) if config else about["config"]
    about["notes"] = json.dumps({**NOTES, **notes}) if isinstance(notes, dict) else notes or about["notes"]
    save_file(tensors, path, metadata=about)
    return path


HUGE = {
    "classes": lambda c: c.update(num_classes=10**12),
    "projection": lambda c: c["branches"][0].update(proj_dim=10**10),
    "other network": lambda c: c["branches"][0].update(backbone="vgg16", cut="relu5_3"),
    "overflow": lambda c: c["branches"][0].update(proj_dim=10**19),
    "text": lambda c: c["branches"][0].update(proj_dim="many"),
    "list": lambda c: [1],
    "branches": lambda c: c.update(branches="x"),
}


@pytest.mark.parametrize("name", HUGE)
def test_headers_that_announce_what_is_not_there(path, name):
    before = torch.get_default_device()
    with pytest.raises(ValueError, match=r"m\.safetensors: expected"):
        bcnn.load(rewrite(path, config=HUGE[name]))
    assert torch.get_default_device() == before


def test_steps_without_end_are_refused(path):
    def ask(content):
        content["head"]["normalize"] = ["matrix_sqrt(forward=newton_schulz, num_iters=10000000)", "l2"]

    with pytest.raises(ValueError, match="from 0 to 1000"):
        bcnn.load(rewrite(path, config=ask))


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ({"temperature": 0}, "temperature > 0"),
        ({"temperature": float("nan")}, "temperature > 0"),
        ({"temperature": -1.0}, "temperature > 0"),
        ({"temperature": "warm"}, "temperature > 0"),
        ({"temperature": True}, "temperature > 0"),
        ({"classes": list("ab")}, "as many class names as the network has scores, 3, got 2"),
        ({"classes": list("aab")}, "class names, each once"),
        ({"classes": [1, 2, 3]}, "class names, each once"),
        ({"classes": 3}, "expected the notes"),
        ({"precision": "float1"}, "precision of float32"),
        ("[]", "JSON object"),
        ("{", "notes as JSON"),
    ],
)
def test_notes_that_cannot_be(path, notes, message):
    with pytest.raises(ValueError, match=message):
        open_run(rewrite(path, notes=notes))


def test_the_file_itself_is_read(path):
    assert open_run(rewrite(path)).classes == ("a", "b", "c")
