"""The whole report of real measurements: page, Markdown and LaTeX, and in a real browser."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from bcnn.experiments import EXPERIMENTS
from bcnn.experiments.jobs.tuned import tuned
from bcnn.experiments.records import Outcome
from bcnn.experiments.report import _curves, make_document, write_report
from bcnn.experiments.results import Results, job_to_plain
from bcnn.experiments.run_folder import answers
from tests.browser import browser_or_skip, open_page
from tests.experiments.lab import info


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
    minutes, seconds = sections["times"].blocks
    assert len(seconds.rows) == len(results.measurements)
    assert {row[0] for row in minutes.rows} == {"describing images", *EXPERIMENTS}
    own = [float(row[1]) for row in seconds.rows if "cub, tiny, 32 px, frozen, bilinear > " in row[0]]
    table1 = next(row for row in minutes.rows if row[0] == "table1_normalization")
    assert table1[2] == "5 of 5"
    assert 60 * float(table1[3]) <= sum(own) + 60  # rounded each
    shown = "\n".join(block.text for block in sections["configurations"].blocks)
    for job in results.measurements:
        assert json.dumps(job_to_plain(job)) in shown
    assert '"torch"' in shown


def test_runs_of_train_are_sections_of_their_own(lab):
    shop, _, _ = lab
    (run,) = [path for path in (shop.out / "finetune").iterdir() if path.name.startswith("lyapunov_tiny_0")]
    document = make_document([run])
    (section,) = document.sections
    assert "improved_bcnn, tiny at 32 px" in section.title
    assert [type(block).__name__ for block in section.blocks] == ["Table", "Picture", "Picture", "Details"]
    both = make_document([shop.out, run])
    assert both.sections[-1].anchor == "run1"


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected folders with results\.jsonl or metrics\.json"):
        make_document([tmp_path])
    (tmp_path / "metrics.json").write_text("[]")
    with pytest.raises(ValueError, match="expected the metrics of a run of bcnn train"):
        make_document([tmp_path])


@pytest.mark.parametrize("width", [400, 1400])
def test_it_looks_right_in_a_browser(page, width):
    browser_or_skip()
    with open_page(page[0], width) as opened:
        assert opened.messages == []
        assert opened.is_as_wide_as_the_window()
        assert opened.sticking_out() == []
        assert opened.broken_images() == []


def test_experiments_of_their_own_are_not_averaged_in_one_curve(lab):
    _, subject, results = lab
    both = Results()
    both.include(results)
    other = replace(subject, images="0" * 16)
    both.add_subject(other, info(other))
    job = tuned(subject, "bcnn")[0]
    both.add(replace(job, images=other.images), Outcome(results.get(job)), 1.0)
    for found, number in ((results, 1), (both, 2)):
        (section,) = _curves(found)
        assert len(section.blocks) == number


def test_a_folder_of_folders_is_searched(lab, tmp_path):
    shop, _, results = lab
    (tmp_path / "sweep").mkdir()
    shutil.copy(results.path, tmp_path / "sweep")
    tuned_run = next((shop.out / "finetune").iterdir())
    for place in ("sweep/finetune/one", "runs/bcnn", "alone"):  # the first is part of the sweep
        shutil.copytree(tuned_run, tmp_path / place, ignore=shutil.ignore_patterns("*descriptors*", "*.safetensors"))
    document = make_document([tmp_path])
    assert document.sections[0].anchor == "table1_normalization"
    assert [section.anchor for section in document.sections if section.anchor.startswith("run")] == ["run1", "run2"]


def test_files_of_others_are_not_overwritten(lab, tmp_path):
    shop, _, _ = lab
    (tmp_path / "README.md").write_text("# Mine\n")
    with pytest.raises(FileExistsError, match=r"README.md to be new or an earlier report, got another file"):
        write_report([shop.out], tmp_path / "README.html")
    assert (tmp_path / "README.md").read_text() == "# Mine\n"
    assert not (tmp_path / "README.html").exists()


def test_a_run_without_test_images_has_curves_alone(lab, tmp_path):
    shop, _, _ = lab
    first = next((shop.out / "finetune").iterdir())
    metrics = json.loads((first / "metrics.json").read_text())
    for name in ("per_class", "interval95", "top5_accuracy", "mean_class_accuracy"):
        del metrics[name]
    metrics |= {"accuracy": None, "num_test": 0}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    (section,) = make_document([tmp_path]).sections
    assert [type(block).__name__ for block in section.blocks] == ["Table", "Picture", "Details"]


def test_names_that_are_no_text(lab, tmp_path):
    """Of folders with bytes that are no UTF-8: tables of predictions write them out."""
    shop, _, _ = lab
    run = tmp_path / "run"
    first = next((shop.out / "finetune").iterdir())
    shutil.copytree(first, run, ignore=shutil.ignore_patterns("*descriptors*", "*.safetensors"))
    metrics = json.loads((run / "metrics.json").read_text())
    metrics["per_class"] = {name.replace("class_0", "\udcff"): own for name, own in metrics["per_class"].items()}
    (run / "metrics.json").write_text(json.dumps(metrics))
    text = (run / "predictions.csv").read_text().replace("class_0,", "\\udcff,")
    (run / "predictions.csv").write_text(text)
    assert "\\udcff" in text
    truth, predicted = answers(run, metrics["per_class"])
    assert np.mean(np.equal(truth, predicted)) == metrics["accuracy"]
    assert len(write_report([run], tmp_path / "report.html")) == 3


def test_results_without_a_word_on_their_dataset_are_refused(lab, tmp_path):
    lines = (lab[0].out / "results.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "results.jsonl").write_text("".join(line for line in lines if json.loads(line)["what"] != "dataset"))
    with pytest.raises(ValueError, match="expected a line on every dataset"):
        write_report([tmp_path], tmp_path / "report.html")
