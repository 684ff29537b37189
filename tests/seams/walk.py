"""The way of a part through everything that can be done with a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import bcnn
from bcnn.files import read_csv
from tests.command import run_command

SMALL = ("--weights", "none", "--size", "32", "--preset", "bcnn")
SHORT = ("--finetune", "--epochs", "2", "--lr", "0.05", "--batch-size", "6", "--val-share", "0.25")


def train(pictures: Path, out: Path, *options: str) -> dict[str, Any]:
    """Train by the command, twice: the second time nothing is left to do, and the result is the same."""
    command = ["train", pictures, *SMALL, *options, "--out", out]
    if "--backbone" not in options:
        command += ["--backbone", "tiny"]
    for _ in range(2):
        done = run_command(*command)
        assert done.returncode == 0, done.stderr
        metrics = json.loads((out / "metrics.json").read_text())
        assert metrics["num_test"] == 9
    return metrics


def predict(pictures: Path, out: Path) -> None:
    """Load the model's file; what it says of the test images is what the run wrote down."""
    model = bcnn.load(out / "model.safetensors")
    again = bcnn.load(bcnn.save(model, out / "again.safetensors"))
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(model(images), again(images))
    done = run_command("predict", out, pictures / "test", "--format", "json")
    assert done.returncode == 0, done.stderr
    said = [record["top"][0] for record in json.loads(done.stdout)]
    written = read_csv(out / "predictions.csv")
    assert [own["class"] for own in said] == [row["class1"] for row in written]
    for own, row in zip(said, written, strict=True):
        assert abs(own["probability"] - float(row["probability1"])) < 1e-4
    done = run_command("evaluate", out, pictures, "--out", out / "evaluated")
    assert done.returncode == 0, done.stderr
    wanted, got = (json.loads((place / "metrics.json").read_text())["accuracy"] for place in (out, out / "evaluated"))
    assert got == wanted
