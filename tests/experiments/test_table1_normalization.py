"""Table 1."""

from bcnn.experiments.records import Subject
from bcnn.experiments.table1_normalization import EXPERIMENT, cells


def test_the_papers_numbers_stand_beside_their_rows():
    own = cells(Subject("cub", "abc", "vgg16"))
    assert [(cell.labels[0], cell.paper) for cell in own] == [
        ("sgnsqrt", 80.1), ("log", 77.9), ("sqrt", 80.6), ("log + sgnsqrt", 81.1), ("sqrt + sgnsqrt", 82.8),
    ]  # fmt: skip
    assert [cell.paper for cell in cells(Subject("cub", "abc", "alexnet"))] == [None] * 5


def test_gains_are_over_the_plain_network(lab):
    _, subject, results = lab
    _, table = EXPERIMENT.blocks(results, [subject])
    plain = results.get(cells(subject)[0].jobs[0]).accuracy
    for row, cell in list(zip(table.rows, cells(subject), strict=True))[1:]:
        own = results.get(cell.jobs[0]).accuracy
        assert row[6] == f"{100 * (own - plain):+.1f}"
