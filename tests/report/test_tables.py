"""One declaration of columns gives the same table in the terminal, as Markdown, from a run and from its file."""

import io

import pytest
from rich.console import Console

from bcnn.files import read_csv
from bcnn.report.tables import Column, Layout, interval, percent

VERSIONS = {"machine": "m", "threads": "2", "torch": "2", "python": "3"}
LAYOUT = Layout(
    columns=(
        Column("group"),
        Column("case", "case"),
        Column("time_ms", "time in ms", ".1f", short="ms"),
        Column("share", "share, %", lambda record: percent(record["share"], record["spread"])),
        Column("spread"),
    ),
    note="How to read it.",
    bars={"time_ms": "ms", "share": "share"},
    is_bad=lambda record: record["case"] == "bad",
)


def record(group, case, time_ms=1.0, share=None, spread=None):
    return {"group": group, "case": case, "time_ms": time_ms, "share": share, "spread": spread, **VERSIONS}


RECORDS = [record("a", "x|y", share=0.5), record("b", "bad", None), record("a", "[z]", 2.25, 0.25, 0.015)]


def test_markdown_has_a_table_per_title_and_the_note_once():
    assert LAYOUT.markdown(RECORDS) == (
        "**a**\n\n| case | time in ms | share, % |\n| --- | ---: | ---: |\n| x\\|y | 1.0 | 50.0 |\n"
        "| \\[z] | 2.2 | 25.0 ± 1.5 |\n\n"
        "**b**\n\n| case | time in ms | share, % |\n| --- | ---: | ---: |\n| bad |  |  |\n\n"
        "m, 2 threads, cpu, float32, torch 2, Python 3. How to read it.\n"
    )


def test_files_give_the_same_table(tmp_path):
    LAYOUT.write(RECORDS, tmp_path / "x_torch2.13")
    assert {path.name for path in tmp_path.iterdir()} == {"x_torch2.13.csv", "x_torch2.13.md", "x_torch2.13.png"}
    assert LAYOUT.markdown(read_csv(tmp_path / "x_torch2.13.csv")) == (tmp_path / "x_torch2.13.md").read_text()


def test_tables_that_were_not_measured_anew_stay_if_machine_and_versions_are_the_same(tmp_path):
    stem = tmp_path / "x"
    assert LAYOUT.earlier(RECORDS, stem) == []
    LAYOUT.write(RECORDS, stem)
    again = [record("b", "good", 3.0)]
    earlier = LAYOUT.earlier(again, stem)
    assert [own["case"] for own in earlier] == ["x|y", "[z]"]
    LAYOUT.write([*earlier, *again], stem)
    assert [own["case"] for own in read_csv(tmp_path / "x.csv")] == ["x|y", "[z]", "good"]
    assert LAYOUT.earlier([{**again[0], "machine": "other"}], stem) == []
    (tmp_path / "x.csv").write_text("group,case\na,old\n")
    assert LAYOUT.earlier(again, stem) == []


def test_terminal_has_short_headings_and_takes_nothing_for_markup():
    console = Console(file=io.StringIO(), width=100)
    console.print(LAYOUT.terminal(RECORDS))
    said = console.file.getvalue()
    assert "time in ms" not in said
    for text in ("ms", "x|y", "[z]", "25.0 ± 1.5", "How to read it."):
        assert text in said


def test_terminal_leaves_out_columns_that_are_empty_in_a_table():
    console = Console(file=io.StringIO(), width=100)
    console.print(LAYOUT.terminal(RECORDS))
    first, second = console.file.getvalue().split("\nb ", 1)
    assert "share, %" in first
    assert "share, %" not in second


def test_bars_are_drawn_of_what_was_measured():
    axes = LAYOUT.figure(RECORDS).axes
    assert [(panel.get_title(loc="left"), len(panel.patches)) for panel in axes] == [("a", 2), ("", 2)]


@pytest.mark.parametrize("records", [[], RECORDS[:1]])
def test_no_and_one_record(records):
    assert ("How to read it." in LAYOUT.markdown(records)) == bool(records)


def test_percentages_and_intervals():
    assert percent("0.8304") == "83.0"
    assert percent(-0.021, "", sign="+") == "-2.1"
    assert interval(0.001, "0.02", sign="+") == "+0.1 to +2.0"
