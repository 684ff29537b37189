"""Progress bars say what is done, on the error stream."""

import pytest

from bcnn.cli.progress import progress_bars


def test_stages_and_notes_on_the_error_stream(capsys):
    with progress_bars() as progress:
        progress("describing images", 4, 4)
        progress("gram", 1, 2)
        progress("training images", 8, 8, "loss 0.1")
    out, err = capsys.readouterr()
    assert not out
    assert all(text in err for text in ("describing images", "4/4", "training images", "8/8", "loss 0.1"))
    assert "gram" not in err  # it is over, and no images are counted


def test_bytes_of_unknown_number(capsys):
    with progress_bars(in_bytes=True) as progress:
        progress("downloading", 3, 0)
    assert "3/? bytes" in capsys.readouterr().err


@pytest.mark.parametrize("options", [{"show": False}, {"transient": True}])
def test_nothing_is_left(options, capsys):
    with progress_bars(**options) as progress:
        progress("images", 1, 2)
    assert "images" not in capsys.readouterr().err
