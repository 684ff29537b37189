"""Table 4."""

from bcnn.experiments.records import Subject
from bcnn.experiments.table4_prior_work import EXPERIMENT, TUNED, cells
from bcnn.pooling.head import PAPERS


def test_every_preset_is_there():
    own = cells(Subject("cub", "abc", "vgg16"))
    assert [cell.labels[0] for cell in own if cell.labels[1] == "frozen"] == list(PAPERS)
    assert [cell.labels[0] for cell in own if cell.labels[1] == "fine-tuned"] == list(TUNED)


def test_all_rows_of_the_paper_and_ours(lab):
    _, subject, results = lab
    printed, ours = EXPERIMENT.blocks(results, [subject])
    assert len(printed.rows) == 13
    assert printed.rows[-1] == ("KP", "VGG-D", "-", "-", "86.2", "92.4", "86.9")
    assert len(ours.rows) == len(PAPERS) + len(TUNED)


def test_a_gap_that_another_subject_fills_is_none(lab):
    _, subject, results = lab
    longer = Subject(**{**vars(subject), "epochs": 50})  # frozen results are the same, tuned ones are missing
    _, ours = EXPERIMENT.blocks(results, [subject, longer])
    assert len(ours.rows) == len(PAPERS) + len(TUNED)
    _, alone = EXPERIMENT.blocks(results, [longer])
    assert [row[4] for row in alone.rows].count("not run") == len(TUNED)


def test_a_gap_at_another_size_is_one(lab):
    _, subject, results = lab
    larger = Subject(**{**vars(subject), "size": 64})  # its tuned results are the same
    _, ours = EXPERIMENT.blocks(results, [subject, larger])
    assert [row[4] for row in ours.rows if row[3] == "64"] == ["not run"] * len(PAPERS)
