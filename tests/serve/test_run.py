"""`bcnn serve` itself: what it needs, where it listens, and what it says if it cannot."""

import re
import signal
import subprocess
import sys

import httpx
import pytest

from bcnn.serve.guard import is_loopback
from bcnn.serve.run import listen
from tests.command import run_command
from tests.serve.runs import make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("p"))


def test_without_the_extra_it_says_what_to_install(run, monkeypatch):
    monkeypatch.setattr("bcnn.serve.run.find_spec", lambda name: None)
    done = run_command("serve", run)
    assert done.returncode == 2
    assert "pip install 'bcnn[serve]'" in done.stderr


@pytest.mark.parametrize("host", ["", " "])
def test_no_address_is_not_every_address(host):
    with pytest.raises(ValueError, match="expected an address to listen on, got none"):
        listen(host, 0)


def test_a_port_that_is_taken_is_said(run):
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        done = run_command("serve", run, "--port", taken.getsockname()[1])
    assert done.returncode == 2
    assert "choose another --port" in done.stderr


def test_what_is_on_this_machine_alone():
    assert [is_loopback(name) for name in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")] == [
        True, True, True, False, False
    ]  # fmt: skip


@pytest.mark.slow
def test_the_command_serves_until_it_is_told_to_end(run, tmp_path):
    before = sorted(path for path in run.rglob("*"))
    command = [sys.executable, "-m", "bcnn", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        try:
            address = re.search(r"on (http://127\.0\.0\.1:\d+/)", server.stdout.readline())[1]
            assert httpx.get(f"{address}api/run", timeout=60).json()["num_classes"] == 3
            assert httpx.get(address, timeout=60).text.startswith("<!DOCTYPE html>")
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(timeout=60) in (0, 130, -signal.SIGINT)
    assert sorted(path for path in run.rglob("*")) == before  # it writes nothing there
    assert list(tmp_path.iterdir()) == []
