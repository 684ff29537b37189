"""The command through its entry point, with good and bad arguments."""

import re
import subprocess
import sys

import pytest

from bcnn.files import read_csv

from .command import run_command as run


def test_it_is_a_command_of_its_own():
    result = subprocess.run([sys.executable, "-m", "bcnn", "--help"], capture_output=True, text=True)
    assert result.returncode == 0
    assert "bench" in result.stdout


def test_help_and_version():
    assert "bench" in run("--help").stdout
    assert "--regime" in run("bench", "matfun", "--help").stdout
    import bcnn

    assert run("--version").stdout.strip() == f"bcnn {bcnn.__version__}"


def test_methods_lists_every_name():
    from bcnn.fronts import FRONTS
    from bcnn.matfun.backward import BACKWARDS
    from bcnn.matfun.forward import FORWARDS
    from bcnn.pooling import POOLINGS
    from bcnn.pooling.head import PRESETS
    from bcnn.pooling.normalize import NORMALIZATIONS
    from bcnn.scorers import SCORERS

    out = run("methods").stdout
    registries = (POOLINGS, NORMALIZATIONS, FRONTS, SCORERS)
    assert all(f" {name} " in out for names in (FORWARDS, BACKWARDS, PRESETS, *registries) for name in names)
    said = " ".join(re.sub("[│┃]", " ", out).split())
    for registry in registries:
        for part in registry.values():
            assert all(option.name in said for option in part.options.values())
    assert "the paper's to the letter" in said  # the help of an option, from its docstring
    assert "needs 2 networks" in said
    assert max(map(len, out.splitlines())) <= 100


def test_methods_lists_a_part_of_your_own(monkeypatch):
    from bcnn.parts.fitting import FittedPart
    from bcnn.parts.registry import Part
    from bcnn.pooling import POOLINGS
    from bcnn.pooling.contract import Pooling

    class Own(Pooling, FittedPart):
        """A pooling.

        Args:
            width: how [many] numbers.
            seed: of the numbers.
        """

        def __init__(self, width: "int", seed: "int" = 7):
            super().__init__()

    monkeypatch.setitem(POOLINGS, "own", Part(Own, "numbers of your own"))
    lines = [" ".join(re.split(r"\s*│\s*", line)).strip() for line in run("methods").stdout.splitlines()]
    assert "own numbers of your own; is fitted on training images first" in " ".join(" ".join(lines).split())
    assert "width int to be given how [many] numbers." in lines
    assert "seed int 7 of the numbers." in lines


def test_bench_matfun_writes_everything(tmp_path):
    result = run("bench", "matfun", "--dims", "16", "--batch", "3", "--rounds", "1", "--regime", "flat",
                 "--function", "sqrt,log", "--out", str(tmp_path / "out"))  # fmt: skip
    assert result.returncode == 0, result.stderr
    files = sorted(path.suffix for path in (tmp_path / "out").iterdir())
    assert files == [".csv", ".md", ".png"]
    rows = read_csv(next((tmp_path / "out").glob("*.csv")))
    assert {row["function"] for row in rows} == {"sqrt", "log"}
    assert {row["regime"] for row in rows} == {"flat"}
    by_method = {row["method"]: row for row in rows if row["function"] == "sqrt" and row["regime"] == "flat"}
    assert int(by_method["eigh + autograd"]["num_nonfinite"]) == 3  # repeated eigenvalues
    assert int(by_method["bcnn.sqrtm (default)"]["num_nonfinite"]) == 0
    assert float(by_method["bcnn.sqrtm (default)"]["gradient_error"]) < 1e-5
    assert all(row["torch"] and row["machine"] for row in rows)
    assert "bcnn.sqrtm (default)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--regime", "papr"], "unknown regime 'papr'; did you mean 'paper'?"),
        (["--function", "exp"], "unknown function 'exp'"),
        (["--dims", "a,b"], "expected --dims to be a whole number, got 'a'"),
        (["--dims", "0"], "expected --dims >= 1, got 0"),
        (["--device", "cuda:99"], "expected a device that is present, got 'cuda:99'"),
        (["--device", "gpu"], "expected a device that is present, got 'gpu'"),
        (["--regime", ","], "expected at least one value for regime"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_2(arguments, message):
    result = run("bench", "matfun", "--quick", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_that_cannot_be_written_is_an_error_before_the_work(tmp_path):
    (tmp_path / "file").write_text("x")
    result = run("bench", "matfun", "--quick", "--out", str(tmp_path / "file" / "out"))
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "file" in result.stderr
    assert "100%" not in result.stdout
