"""Folders for results: nobody else's files are touched, no link is followed, one command at a time."""

import os
import subprocess
import sys
import time

import pytest

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
    (folder / "inner" / "metrics.json").symlink_to(target)
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


def test_what_killed_processes_left_is_removed_when_it_is_surely_dead(tmp_path):
    with held(tmp_path, "train"):
        pass
    old, fresh, hidden = tmp_path / ".mistakes-x1y2z3_4.png", tmp_path / ".metrics-x1y2z3_4.json", tmp_path / ".hidden"
    for path in (old, fresh, hidden):
        path.write_text("half")
    for path in (old, hidden):
        os.utime(path, (time.time() - 7200,) * 2)
    with held(tmp_path, "train"):
        pass
    assert not old.exists()
    assert fresh.exists()
    assert hidden.exists()
