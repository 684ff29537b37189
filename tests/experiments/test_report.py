"""The whole report of real measurements: page, Markdown and LaTeX, and in a real browser."""

import json

import pytest

from bcnn.experiments import EXPERIMENTS
from bcnn.experiments.report import make_document, write_report
from tests.browser import browser_or_skip, open_page


@pytest.fixture(scope="module")
def page(lab, tmp_path_factory):
    shop, _, _ = lab
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report([shop.out], path)


def test_page_markdown_and_latex_have_every_artifact(lab, page):
    assert [path.suffix for path in page] == [".html", ".md", ".tex"]
    html, markdown, latex = (path.read_text() for path in page)
    for name, experiment in EXPERIMENTS.items():
        assert f'id="{name}"' in html
        assert f"## {experiment.title}" in markdown
    assert "<script" not in html
    assert "\\begin{table}" in latex
    assert str(lab[0].out) not in html + markdown + latex  # no paths of the machine


def test_it_has_curves_confusions_times_and_configurations(lab):
    shop, _, results = lab
    document = make_document([shop.out])
    sections = {section.anchor: section for section in document.sections}
    assert list(sections)[-4:] == ["curves", "confusions", "times", "configurations"]
    assert len(sections["times"].blocks[0].rows) == len(results.lines)
    shown = "\n".join(block.text for block in sections["configurations"].blocks)
    for line in results.lines.values():
        assert json.dumps(line["job"]) in shown
    assert '"torch"' in shown


def test_runs_of_train_are_sections_of_their_own(lab):
    shop, _, _ = lab
    (tuned,) = [path for path in (shop.out / "finetune").iterdir() if path.name.startswith("lyapunov_tiny_0")]
    document = make_document([tuned])
    (section,) = document.sections
    assert "improved_bcnn, tiny at 32 px" in section.title
    assert [type(block).__name__ for block in section.blocks] == ["Table", "Picture", "Picture", "Details"]
    both = make_document([shop.out, tuned])
    assert both.sections[-1].anchor == "run1"


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected folders with results\.jsonl or metrics\.json"):
        make_document([tmp_path])
    (tmp_path / "metrics.json").write_text("[]")
    with pytest.raises(ValueError, match="expected that of a run of bcnn train"):
        make_document([tmp_path])


@pytest.mark.parametrize("width", [400, 1400])
def test_it_looks_right_in_a_browser(page, width):
    browser_or_skip()
    with open_page(page[0], width) as opened:
        assert opened.messages == []
        assert opened.is_as_wide_as_the_window()
        assert opened.sticking_out() == []
        assert opened.broken_images() == []
