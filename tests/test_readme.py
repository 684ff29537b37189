"""The README's code runs, its tables are those of the results file, its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bcnn.files import read_csv
from bcnn.report import matfun

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python_blocks_run(block):
    result = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(script):
    offline = ["--random-weights"] if "--random-weights" in script.read_text() else []
    result = subprocess.run([sys.executable, str(script), *offline], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "all finite: True" in result.stdout


@pytest.mark.parametrize("page", PAGES)
def test_local_links_exist(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}, which is not there"


def test_tables_are_those_of_the_results_file():
    (path,) = (ROOT / "benchmarks" / "results").glob("matfun_*.csv")
    records = read_csv(path)
    sections = re.findall(r"<!-- bench matfun: (\w+) (\w+) -->\n(.*?)\n<!-- end -->", README, re.DOTALL)
    assert len(sections) == README.count("<!-- bench matfun") >= 4
    for regime, function, text in sections:
        chosen = [r for r in records if (r["regime"], r["function"]) == (regime, function)]
        assert chosen
        assert text.strip() == matfun.markdown(chosen).strip()
