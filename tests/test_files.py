"""Files are whole or absent."""

import pytest

from bcnn.files import read_csv, write_csv, written_whole


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
