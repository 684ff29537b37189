"""Folders for results: nobody else's files are touched, no link is followed, one command at a time."""

import os
import subprocess
import sys
import time

import pytest

from bcnn.files import written_whole
from bcnn.runs.place import held


def test_new_empty_and_own_folders_are_taken(tmp_path):
    for folder in (tmp_path / "new" / "deep", tmp_path / "empty"):
        for _ in range(2):
            with held(folder, "train"):
                (folder / "metrics.json").write_text("{}")
    assert {name for name in os.listdir(folder) if not name.startswith(".")} == {"metrics.json"}


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "config.yaml").write_text("mine")
    with pytest.raises(ValueError, match=r"expected .* to be new, empty, .* got one with 'config\.yaml'"), \
            held(tmp_path, "train"):  # fmt: skip
        pass
    assert os.listdir(tmp_path) == ["config.yaml"]
    with held(tmp_path, "train", may_hold=("config.yaml",)):
        pass


def test_links_are_refused(tmp_path):
    folder, target = tmp_path / "run", tmp_path / "precious.json"
    target.write_text("precious")
    with held(folder, "evaluate"):
        (folder / "inner").mkdir()
    (folder / "inner" / "deeper" / "still").mkdir(parents=True)
    (folder / "inner" / "deeper" / "still" / "metrics.json").symlink_to(target)
    with pytest.raises(ValueError, match="expected no links"), held(folder, "evaluate"):
        pass
    assert target.read_text() == "precious"


def test_one_process_at_a_time_and_the_dead_do_not_count(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom bcnn.runs.place import held\n"
        "with held(Path(sys.argv[1]), 'train'):\n    print('in', flush=True)\n    time.sleep(600)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "in\n"
        with pytest.raises(ValueError, match="got another process; wait for it"), held(tmp_path, "train"):
            pass
    finally:
        other.kill()
        other.wait()
    with held(tmp_path, "train"):
        pass


def test_what_killed_processes_left_is_removed_at_once_and_what_is_being_written_is_not(tmp_path):
    with held(tmp_path, "train"):
        (tmp_path / "deep" / "er").mkdir(parents=True)
    dead = [
        tmp_path / ".bcnn-mistakes-x1y2z3_4.png",
        tmp_path / "deep" / "er" / ".bcnn-chunk-00000-x1y2z3_4.safetensors",
    ]
    earlier = tmp_path / ".mistakes-x1y2z3_4.png"  # as earlier versions called them
    kept = [tmp_path / ".metrics-x1y2z3_4.json", tmp_path / ".hidden", tmp_path / "deep" / "a-x1y2z3_4.png"]
    for path in (*dead, earlier, *kept):
        path.write_text("half")
    for path in (earlier, *kept[1:]):
        os.utime(path, (time.time() - 7200,) * 2)
    with written_whole(tmp_path / "deep" / "live.txt") as temporary:
        temporary.write_text("whole")
        code = "import sys\nfrom pathlib import Path\nfrom bcnn.runs.place import held\n"
        code += "with held(Path(sys.argv[1]), 'x'):\n    pass\n"
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
        assert temporary.exists()
    assert (tmp_path / "deep" / "live.txt").read_text() == "whole"
    assert not any(path.exists() for path in (*dead, earlier))
    assert all(path.exists() for path in kept)


def test_a_lock_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / ".lock").write_text("mine")
    with held(tmp_path, "train"):
        pass
    assert (tmp_path / ".lock").read_text() == "mine"
