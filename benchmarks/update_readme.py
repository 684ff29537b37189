"""Puts the tables of benchmarks/results into the README, between its markers.

Run: python benchmarks/update_readme.py        (after: bcnn bench matfun --out benchmarks/results)
"""

import re
from pathlib import Path

from bcnn.files import read_csv, written_whole
from bcnn.report import matfun

ROOT = Path(__file__).parent.parent


def main() -> None:
    (path,) = (ROOT / "benchmarks" / "results").glob("matfun_*.csv")
    records = read_csv(path)

    def section(match: re.Match[str]) -> str:
        regime, function = match.groups()
        chosen = [r for r in records if (r["regime"], r["function"]) == (regime, function)]
        return f"<!-- bench matfun: {regime} {function} -->\n{matfun.markdown(chosen).strip()}\n<!-- end -->"

    text = (ROOT / "README.md").read_text()
    text = re.sub(r"<!-- bench matfun: (\w+) (\w+) -->\n.*?<!-- end -->", section, text, flags=re.DOTALL)
    text = re.sub(
        r"(benchmarks/results/)(?:MATFUN|matfun_[\w.-]*?)(\.(?:png|md|csv)\b)", rf"\g<1>{path.stem}\g<2>", text
    )
    with written_whole(ROOT / "README.md") as temporary:
        temporary.write_text(text)


if __name__ == "__main__":
    main()
