"""Figure 2."""

from bcnn.experiments import table1_normalization
from bcnn.experiments.figure2_exponent import EXPERIMENT, EXPONENTS, cells
from bcnn.experiments.records import Subject
from bcnn.report.document import Picture


def test_ten_exponents_two_of_which_are_rows_of_table_1():
    subject = Subject("cub", "abc", "vgg16")
    own = {float(cell.labels[0]): cell for cell in cells(subject)}
    assert len(own) == len(EXPONENTS) == 10
    table1 = {cell.labels[0]: cell for cell in table1_normalization.cells(subject)}
    assert own[1.0].jobs == table1["sgnsqrt"].jobs
    assert own[0.5].jobs == table1["sqrt + sgnsqrt"].jobs
    assert own[0.3].jobs[0].normalize[0] == "matrix_power(0.3)"
    assert (own[1.0].paper, own[0.5].paper, own[0.3].paper) == (80.1, 82.8, None)


def test_it_is_drawn_with_all_points_and_the_papers(lab):
    _, subject, results = lab
    picture, overview, table = EXPERIMENT.blocks(results, [subject])
    assert isinstance(picture, Picture)
    assert "exponent" in picture.alt
    assert [row[0] for row in table.rows] == [f"{p:g}" for p in EXPONENTS]
    assert len(overview.rows) > 10  # VGG-D's rows, too
