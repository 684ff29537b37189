"""The command is killed, the disk is full, two processes share the work: nothing is lost, torn, or done twice."""

import random
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from bcnn.descriptors.folder import Descriptors
from tests.descriptors.images import picture_folder
from tests.processes import Running, run, slowly

pytestmark = pytest.mark.slow
OPTIONS = ["--backbone", "tiny", "--weights", "none", "--size", "32", "--preset", "bcnn", "--batch", "2"]


def command(spec: Path, out: Path) -> list[str]:
    return ["extract", str(spec), "--out", str(out), *OPTIONS]


def everything(folder: Path) -> tuple[torch.Tensor, list[int]]:
    descriptors = Descriptors(folder)
    parts = [descriptors.matrix(split) for split in ("train", "test")]
    return torch.cat([part.columns(0, 10**6) for part in parts]), [row for part in parts for row in part.rows]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p"), classes=4, train=30, test=20)  # seven chunks


@pytest.fixture(scope="module")
def whole(pictures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "f"
    result = run(*command(pictures, folder))
    assert result.returncode == 0, result.stderr
    assert "200 images, 0 of them described before" in result.stdout
    return everything(folder)


def test_killed_at_random_moments_and_resumed(pictures, whole, tmp_path):
    folder = tmp_path / "f"
    chance = random.Random(0)
    killed, stamps = 0, {}
    for _ in range(2):
        process = Running(*command(pictures, folder), before=partial(slowly, 0.1))
        count, deadline = len(list(folder.glob("chunk-*"))), time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:  # wait for one more chunk, then a random moment
            if len(list(folder.glob("chunk-*"))) > count:
                break
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        killed += process.wait().returncode == -signal.SIGKILL
        for path in folder.glob("chunk-*"):
            assert stamps.setdefault(path.name, path.stat().st_mtime_ns) == path.stat().st_mtime_ns  # never again
    assert killed == 2
    assert run(*command(pictures, folder)).returncode == 0
    for name, stamp in stamps.items():
        assert (folder / name).stat().st_mtime_ns == stamp
    found, rows = everything(folder)
    assert torch.equal(found, whole[0])
    assert rows == whole[1]


def test_two_processes_give_the_same_as_one(pictures, whole, tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "bcnn"]
    result = subprocess.run([*torchrun, *command(pictures, tmp_path / "f")], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("200 images") == 1  # one of them speaks
    found, rows = everything(tmp_path / "f")
    assert torch.equal(found, whole[0])
    assert rows == whole[1]


def little_room():
    """No file larger than this: what was before it is whole."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_a_full_disk_ends_in_one_line_and_is_gone_on_from(pictures, whole, tmp_path):
    folder = tmp_path / "f"
    result = run(*command(pictures, folder), before=little_room)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "the same command again" in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == [".bcnn.lock", "descriptors.json"]  # nothing half-written
    assert run(*command(pictures, folder)).returncode == 0
    assert torch.equal(everything(folder)[0], whole[0])
