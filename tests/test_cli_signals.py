"""SIGTERM, Ctrl-C and a terminal that is closed: no traceback, nothing half-written, the same results afterwards."""

import signal
import subprocess
import sys
import time

import pytest

from tests.descriptors.images import picture_folder
from tests.processes import Running, run

SMALL = ["--backbone", "tiny", "--weights", "none", "--size", "32"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p") / "pictures", classes=2, train=4, test=2)


def dwell() -> None:
    """Stay inside of the first file that is half-written."""
    from bcnn import files

    to_disk = files._to_disk

    def slow(path, flags):
        to_disk(path, flags)
        time.sleep(30)

    files._to_disk = slow


def temporaries(folder):
    return [path.name for path in folder.rglob(".*") if path.name not in (".bcnn", ".bcnn.lock")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("finetune", [(), ("--finetune", "--epochs", "1")], ids=["frozen", "finetune"])
def test_told_to_stop_while_a_file_is_half_written(pictures, tmp_path, number, finetune):
    out = tmp_path / "run"
    command = ("train", pictures, *SMALL, *finetune, "--out", out)
    process = Running(*command, before=dwell)
    deadline = time.monotonic() + 60
    while not (out.exists() and temporaries(out)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert temporaries(out)
    process.send_signal(number)
    ended = process.wait(20)
    assert ended.returncode == 128 + number
    assert "Traceback" not in ended.stderr
    assert temporaries(out) == []
    again = run(*command)
    assert again.returncode == 0, again.stderr


def test_ctrl_c_while_the_command_is_loaded():
    """Importing takes a while; whoever changes their mind by then sees no traceback."""
    code = "import sys, os, signal, bcnn.__main__ as m\n"
    code += "class Finder:\n    def find_spec(self, name, *rest):\n"
    code += "        if name == 'typer': os.kill(os.getpid(), signal.SIGINT)\n"
    code += "sys.meta_path.insert(0, Finder())\nm.main()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
