"""The command is killed, told to stop, shared by processes: the same weights in the end."""

import signal
import time
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from bcnn.files import read_csv
from bcnn.finetune import checkpoint, guard
from bcnn.finetune.source import Pixels
from tests.descriptors.images import picture_folder
from tests.finetune.tasks import assert_same
from tests.processes import Running, run, run_team, slowly

pytestmark = pytest.mark.slow
OPTIONS = [
    "--backbone", "tiny", "--weights", "none", "--size", "32", "--preset", "bcnn", "--finetune", "--epochs", "20",
    "--lr", "0.05", "--batch-size", "6", "--val-share", "0.25", "--on-nonfinite", "skip",
]  # fmt: skip


def command(spec: Path, out: Path, *options: str) -> list[str]:
    return ["train", str(spec), "--out", str(out), *OPTIONS, *options]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p"), classes=3, train=8, test=2)


@pytest.fixture(scope="module")
def whole(pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    result = run(*command(pictures, out))
    assert result.returncode == 0, result.stderr
    assert "fine-tuned, epoch" in result.stdout
    return out


def interrupt(process: Running, out: Path, number: int) -> None:
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
    process = Running(*command(pictures, out), before=partial(slowly, 0.01))
    interrupt(process, out, number)
    ended = process.wait()
    if number == signal.SIGKILL:
        assert ended.returncode == -number
    else:
        assert ended.returncode == 128 + number, ended.stderr
        assert "stopped and saved" in ended.stderr
        assert "Traceback" not in ended.stderr
    assert not (out / "metrics.json").exists()
    again = run(*command(pictures, out, "--resume"))
    assert again.returncode == 0, again.stderr
    same_results(whole, out)


MORE = ("--epochs", "4", "--batch-size", "5")  # shares of three and two images


@pytest.fixture(scope="module")
def alone(pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "run"
    assert run(*command(pictures, out, *MORE)).returncode == 0
    return out


def by_torchrun(arguments):
    leader, other = run_team(*arguments)
    assert other.returncode == 0, other.stderr
    assert other.stdout == ""  # one of them speaks
    return leader


def by_itself(arguments):
    return run(*arguments, "--devices", "2")


@pytest.mark.parametrize("launch", [by_torchrun, by_itself])
def test_two_processes_have_the_losses_of_one(pictures, alone, tmp_path, launch):
    out = tmp_path / "run"
    result = launch(command(pictures, out, *MORE))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("fine-tuned, epoch") == 1
    found, expected = ([float(row["loss"]) for row in read_csv(folder / "steps.csv")] for folder in (out, alone))
    assert len(found) == len(expected) == 4 * 4
    assert found == pytest.approx(expected, rel=1e-4)
    for ours, theirs in zip(read_csv(out / "epochs.csv"), read_csv(alone / "epochs.csv"), strict=True):
        assert float(ours["val_loss"]) == pytest.approx(float(theirs["val_loss"]), rel=1e-4)


def spoil():
    """Two batches of the first process are not finite."""
    original = Pixels.batches

    def batches(self, items, sizes):
        for number, values in enumerate(original(self, items, sizes)):
            if number in (1, 4) and len(items) > 8 and dist.get_rank() == 0:
                values[0, 0, 0, 0] = float("nan")
            yield values

    Pixels.batches = batches


def test_what_is_not_finite_in_one_process_is_skipped_by_all(pictures, tmp_path):
    """The first process meets it, in a part of its share; both go on, and end with the same weights."""
    out = tmp_path / "run"
    options = ("--epochs", "2", "--batch-size", "5", "--batch", "2")
    leader, other = run_team(*command(pictures, out, *options), before=spoil)
    assert (leader.returncode, other.returncode) == (0, 0), leader.stderr + other.stderr
    assert "STEPS SKIPPED" in leader.stdout
    assert other.stdout == ""
    events = read_csv(out / "nonfinite.csv")
    assert events
    assert {event["layer"] for event in events} == {"the input"}
    steps = read_csv(out / "steps.csv")
    assert len(steps) == 2 * 4
    bad = [row for row in steps if row["gradient_norm"] == "nan"]
    assert len(bad) == len(events)
    assert all(value.isfinite().all() for value in load_file(out / "last.safetensors").values())


def test_a_network_beyond_rescue_ends_all_processes(pictures, tmp_path):
    team = run_team(*command(pictures, tmp_path / "run", "--lr", "1e30", "--batch", "2"))
    assert [member.returncode for member in team] == [2, 2]
    said = "".join(member.stderr for member in team)
    lines = [line for line in said.splitlines() if line.startswith("bcnn: finetune: ")]
    assert len([line for line in lines if "skipped" not in line]) == 1  # one of them speaks
    assert "The weights are" in said
    assert "Traceback" not in said


def linger():
    """The second process ends while gloo still works for it, on a tensor that Python has forgotten."""
    original = guard.spoilt_network

    def spoilt_network(*arguments):
        if dist.get_rank() == 0:
            time.sleep(1)
        dist.all_reduce(torch.zeros(3), async_op=dist.get_rank() == 1)
        return original(*arguments)

    guard.spoilt_network = spoilt_network


def test_no_process_waits_for_a_thread_that_waits_for_it(pictures, tmp_path):
    """Torch joins gloo's threads with the interpreter's lock held if the wrapped network is the group's last owner."""
    team = run_team(*command(pictures, tmp_path / "run", "--lr", "1e30", "--batch", "2"), before=linger, timeout=100)
    assert [member.returncode for member in team] == [2, 2]


def come_late():
    """The second process looks for a checkpoint when the first has had time to write one."""
    original = checkpoint.load

    def load(*arguments):
        time.sleep(dist.get_rank())
        return original(*arguments)

    checkpoint.load = load


def test_no_process_goes_on_from_what_another_has_just_begun(pictures, tmp_path):
    """Nothing is held out, so the first checkpoint is written before the processes have met."""
    options = ("--val-share", "0", "--epochs", "2")
    team = run_team(*command(pictures, tmp_path / "run", *options), before=come_late, timeout=100)
    assert [member.returncode for member in team] == [0, 0], team[0].stderr
    assert len(read_csv(tmp_path / "run" / "epochs.csv")) == 3
