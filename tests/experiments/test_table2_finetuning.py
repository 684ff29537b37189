"""Table 2."""

from bcnn.experiments.jobs.tuned import tuned
from bcnn.experiments.records import Subject
from bcnn.experiments.table2_finetuning import EXPERIMENT, cells


def test_the_papers_numbers_before_and_after():
    own = {(cell.part, cell.labels[0]): cell.paper for cell in cells(Subject("aircraft", "abc", "vgg_m"))}
    assert own == {
        ("before fine-tuning", "sgnsqrt"): 74.7,
        ("before fine-tuning", "sqrt + sgnsqrt"): 80.7,
        ("after fine-tuning", "sgnsqrt"): 81.3,
        ("after fine-tuning", "sqrt + sgnsqrt"): 84.0,
    }


def test_before_and_after_are_tables_of_their_own(lab):
    _, subject, results = lab
    overview, before, after = EXPERIMENT.blocks(results, [subject])
    (job,) = tuned(subject, "lyapunov")
    assert before.rows[1][2] == f"{100 * results.get(job).before:.1f}"
    assert after.rows[1][2] == f"{100 * results.get(job).accuracy:.1f}"
    assert overview.header[:3] == ("network", "", "normalization")
    assert "chosen on images cut from the training split" in before.note
