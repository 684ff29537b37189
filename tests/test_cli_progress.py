"""Progress bars say what is done, on the error stream."""

import pytest

from bcnn.cli import progress as module
from bcnn.cli.progress import progress_bars


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(module, "_in_terminal", lambda: True)


def test_a_file_gets_a_line_a_minute(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    with progress_bars() as progress:
        for done in range(301):  # a second each
            progress("gram", done, 400)
            now += 1
        progress("describing images", 3, 4)
        progress("describing images", 4, 4, "note")
    out, err = capsys.readouterr()
    assert not out
    assert err.splitlines() == [
        *(f"bcnn: gram: {done} of 400" for done in (60, 120, 180, 240, 300)), "bcnn: describing images: 4 of 4; note",
    ]  # fmt: skip


def test_stages_and_notes_on_the_error_stream(capsys, terminal):
    with progress_bars() as progress:
        progress("describing images", 4, 4)
        progress("gram", 1, 2)
        progress("training images", 8, 8, "loss 0.1")
    out, err = capsys.readouterr()
    assert not out
    assert all(text in err for text in ("describing images", "4/4", "training images", "8/8", "loss 0.1"))
    assert "gram" not in err  # it is over, and no images are counted


def test_bytes_of_unknown_number(capsys, terminal):
    with progress_bars(in_bytes=True) as progress:
        progress("downloading", 3, 0)
    assert "3/? bytes" in capsys.readouterr().err


@pytest.mark.parametrize("options", [{"show": False}, {"transient": True}])
def test_nothing_is_left(options, capsys, terminal):
    with progress_bars(**options) as progress:
        progress("images", 1, 2)
    assert "images" not in capsys.readouterr().err
