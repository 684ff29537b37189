"""The command is killed, told to stop, shared by processes: the same weights in the end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from bcnn.files import read_csv
from tests.features.images import picture_folder
from tests.train.tasks import assert_same

OPTIONS = [
    "--backbone", "tiny", "--weights", "none", "--size", "32", "--preset", "bcnn", "--finetune", "--epochs", "20",
    "--lr", "0.05", "--batch-size", "6", "--val-share", "0.25", "--on-nonfinite", "skip",
]  # fmt: skip


def command(spec: Path, out: Path, *options: str, launcher: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, *launcher, "-m", "bcnn", "train", str(spec), "--out", str(out), *OPTIONS, *options]


def run(*arguments, launcher: tuple[str, ...] = (), **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments, launcher=launcher), capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p"), classes=3, train=8, test=2)


@pytest.fixture(scope="module")
def whole(pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    result = run(pictures, out)
    assert result.returncode == 0, result.stderr
    assert "fine-tuned, epoch" in result.stdout
    return out


def interrupt(process: subprocess.Popen[str], out: Path, number: int) -> None:
    """After the fifth epoch, somewhere within one."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        path = out / "epochs.csv"
        if path.exists() and len(path.read_text().splitlines()) > 5:
            break
        time.sleep(0.005)
    time.sleep(0.02)
    process.send_signal(number)


def same_results(first: Path, second: Path) -> None:
    for name in ("model.safetensors", "last.safetensors", "best.safetensors"):
        assert_same(load_file(first / name), load_file(second / name))
    assert read_csv(first / "steps.csv") == read_csv(second / "steps.csv")
    assert (first / "predictions.csv").read_text() == (second / "predictions.csv").read_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_interrupted_and_given_again(pictures, whole, tmp_path, number):
    out = tmp_path / "run"
    process = subprocess.Popen(command(pictures, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    interrupt(process, out, number)
    _, said = process.communicate()
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 128 + number, said
        assert "stopped and saved" in said
        assert "Traceback" not in said
    assert not (out / "metrics.json").exists()
    again = run(pictures, out, "--resume")
    assert again.returncode == 0, again.stderr
    same_results(whole, out)


MORE = ("--epochs", "4", "--batch-size", "5")  # shares of three and two images


@pytest.fixture(scope="module")
def alone(pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "run"
    assert run(pictures, out, *MORE).returncode == 0
    return out


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")


@pytest.mark.parametrize(
    ("launcher", "options"), [(TORCHRUN, ()), ((), ("--devices", "2"))], ids=["torchrun", "devices"]
)
def test_two_processes_have_the_losses_of_one(pictures, alone, tmp_path, launcher, options):
    out = tmp_path / "run"
    result = run(pictures, out, *MORE, *options, launcher=launcher, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("fine-tuned, epoch") == 1  # one of them speaks
    found, expected = ([float(row["loss"]) for row in read_csv(folder / "steps.csv")] for folder in (out, alone))
    assert len(found) == len(expected) == 4 * 4
    assert found == pytest.approx(expected, rel=1e-4)
    for ours, theirs in zip(read_csv(out / "epochs.csv"), read_csv(alone / "epochs.csv"), strict=True):
        assert float(ours["val_loss"]) == pytest.approx(float(theirs["val_loss"]), rel=1e-4)


SPOILER = """
import sys
import torch.distributed as dist
from bcnn.train.source import Pixels

original = Pixels.batches

def batches(self, items, sizes):
    for number, values in enumerate(original(self, items, sizes)):
        if number in (1, 4) and len(items) > 8 and dist.get_rank() == 0:
            values[0, 0, 0, 0] = float("nan")
        yield values

Pixels.batches = batches
from bcnn.cli import main
main()
"""


def test_what_is_not_finite_in_one_process_is_skipped_by_all(pictures, tmp_path):
    """The first process meets it, in a part of its share; both go on, and end with the same weights."""
    script = tmp_path / "spoiler.py"
    script.write_text(SPOILER)
    out = tmp_path / "run"
    arguments = [
        "train",
        str(pictures),
        "--out",
        str(out),
        *OPTIONS,
        "--epochs",
        "2",
        "--batch-size",
        "5",
        "--batch",
        "2",
    ]
    command = [sys.executable, *TORCHRUN, str(script), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    assert "STEPS SKIPPED" in result.stdout
    events = read_csv(out / "nonfinite.csv")
    assert events
    assert {event["layer"] for event in events} == {"the input"}
    steps = read_csv(out / "steps.csv")
    assert len(steps) == 2 * 4
    bad = [row for row in steps if row["gradient_norm"] == "nan"]
    assert len(bad) == len(events)
    assert all(value.isfinite().all() for value in load_file(out / "last.safetensors").values())


def test_a_network_beyond_rescue_ends_all_processes(pictures, tmp_path):
    result = run(pictures, tmp_path / "run", "--lr", "1e30", "--devices", "2", "--batch", "2", timeout=240)
    assert result.returncode == 2
    said = [line for line in result.stderr.splitlines() if line.startswith("bcnn: finetune: ")]
    assert len([line for line in said if "skipped" not in line]) == 1  # one of them speaks
    assert "The weights are" in result.stderr
    assert "Traceback" not in result.stderr
