"""Files are whole or absent."""

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from bcnn import files
from bcnn.files import amount, from_json, read_csv, write_csv, written_whole


def test_round_trip(tmp_path):
    records = [{"a": 0.1 + 0.2, "b": "x, y"}, {"a": float("nan"), "b": ""}]
    write_csv(tmp_path / "deep" / "t.csv", records)
    again = read_csv(tmp_path / "deep" / "t.csv")
    assert float(again[0]["a"]) == records[0]["a"]
    assert again[0]["b"] == "x, y"


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError), written_whole(path) as temporary:
        temporary.write_text("half \udce4")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_umask_holds_and_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    previous = os.umask(0o077)
    try:
        with written_whole(link) as temporary:
            temporary.write_text("new")
    finally:
        os.umask(previous)
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o600


def test_content_is_on_the_disk_before_its_name_and_the_name_afterwards(tmp_path, monkeypatch):
    path, seen = tmp_path / "t.txt", []

    def watched(handle):
        name = os.readlink(f"/proc/self/fd/{handle}") if os.path.isdir("/proc/self/fd") else ""
        seen.append((os.path.isdir(name), path.exists()))

    monkeypatch.setattr(os, "fsync", watched)
    with written_whole(path) as temporary:
        temporary.write_text("whole")
    assert [exists for _, exists in seen] == [False, True]
    if os.path.isdir("/proc/self/fd"):
        assert [folder for folder, _ in seen] == [False, True]


def test_folders_that_cannot_be_brought_to_the_disk_do_no_harm(tmp_path, monkeypatch):
    opened = os.open

    def refuse(path, flags, *rest, **options):
        if os.path.isdir(path):
            raise PermissionError(13, "a folder", str(path))
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    with written_whole(tmp_path / "t.txt") as temporary:
        temporary.write_text("whole")
    assert (tmp_path / "t.txt").read_text() == "whole"


def test_a_disk_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "t.txt"
    path.write_text("old")

    def fail(handle):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"), written_whole(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_of_a_newer_version_is_refused():
    assert from_json(Point, {"x": 1, "y": [2, 3]}) == Point(1, (2, 3))
    with pytest.raises(ValueError, match="unknown field 'z' in Point"):
        from_json(Point, {"x": 1, "z": 2})


@dataclass(frozen=True)
class Point:
    x: int
    y: tuple[int, ...] = ()


@pytest.mark.parametrize("at", ["mkdir", "open", "fsync"])
def test_a_full_disk_names_the_folder_and_what_is_free(tmp_path, monkeypatch, at):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr({"mkdir": Path, "open": os, "fsync": os}[at], at, full)
    told = rf"room for t\.txt in {re.escape(str(tmp_path))}, got a full disk \(.* free\)"
    with pytest.raises(OSError, match=told), written_whole(tmp_path / "t.txt") as temporary:
        temporary.write_text("whole")


def test_told_to_stop_as_soon_as_the_file_is_there(tmp_path, monkeypatch):
    def stop(handle):
        assert list(tmp_path.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "hold", stop)
    with pytest.raises(KeyboardInterrupt), written_whole(tmp_path / "t.txt"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0.0 MB"), (340_200_000, "340.2 MB"), (1_000_000_000, "1.0 GB"), (21e12, "21000.0 GB")]
)
def test_amounts(size, text):
    assert amount(size) == text
