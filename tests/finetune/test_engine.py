"""Processes and machines: no more than there are, and no waiting without end for those that nobody starts."""

import socket

import pytest

from bcnn.finetune import engine
from tests.command import run_command
from tests.processes import run

SMALL = ["--backbone", "tiny", "--weights", "none", "--size", "32", "--finetune", "--epochs", "1"]


def impatient():
    engine.MEETING_S = 1.0


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_more_processes_than_the_machine_can_take_are_refused(tmp_path):
    result = run_command("train", "textures", *SMALL, "--devices", "1000", "--out", tmp_path / "r")
    assert result.returncode == 2
    assert "expected --devices of at most" in result.stderr
    assert " cores, got 1000" in result.stderr
    assert not (tmp_path / "r").exists()


def test_machines_that_cannot_find_each_other_are_refused(tmp_path):
    result = run_command("train", "textures", *SMALL, "--nodes", "2", "--out", tmp_path / "r")
    assert result.returncode == 2
    assert "expected MASTER_ADDR and MASTER_PORT" in result.stderr
    assert "torchrun" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["0", "1"])
def test_machines_that_nobody_starts_are_not_waited_for_without_end(tmp_path, rank):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": rank}
    result = run("train", "textures", *SMALL, "--nodes", "2", "--out", tmp_path / "r", env=env, before=impatient)
    assert result.returncode == 2
    assert f"expected 2 machines at 127.0.0.1:{port}" in result.stderr
    assert "Traceback" not in result.stderr
