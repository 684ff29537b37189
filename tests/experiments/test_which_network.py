"""Which network: accuracy against time."""

from dataclasses import replace

from bcnn.experiments.jobs.system import SystemResult
from bcnn.experiments.records import Outcome, Subject
from bcnn.experiments.results import Results
from bcnn.experiments.systems import SYSTEMS
from bcnn.experiments.which_network import CHOICES, EXPERIMENT, cells, rows, unbeaten
from bcnn.report.document import Picture
from tests.experiments.lab import info

SUBJECT = Subject("cub", "abc", "alexnet")
TRUTH = (0, 1, 2, 0, 1, 2, 0, 1, 2, 0)


def outcome(num_right: int, ms: float) -> Outcome[SystemResult]:
    """So many of ten right answers, in so many milliseconds a view."""
    predicted = tuple(label if i < num_right else (label + 1) % 3 for i, label in enumerate(TRUTH))
    share = num_right / 10
    result = SystemResult(share, None, share, 10, 20, 0, TRUTH, predicted, 64, 99, 0.75 * ms, 0.25 * ms, {}, 1.0, 2.0)
    return Outcome(result)


def measurements() -> tuple[Results, list[Subject]]:
    results, large = Results(), replace(SUBJECT, network="vgg16")
    results.add_subject(SUBJECT, info(SUBJECT))
    results.add_subject(large, info(SUBJECT))
    for subject, values in ((SUBJECT, ((3, 100), (6, 110), (7, 120), (7, 130))), (large, ((6, 600), (8, 620)))):
        for cell, (num_right, ms) in zip(cells(subject), values, strict=False):
            results.add(cell.jobs[0], outcome(num_right, ms), 1.0)
    return results, [SUBJECT, large]


def test_the_jobs_are_those_of_table_4():
    assert EXPERIMENT.jobs(SUBJECT) == [SYSTEMS[name].job(SUBJECT) for name in CHOICES]
    assert [cell.labels for cell in cells(replace(SUBJECT, systems=("cbp", "cbp_sqrt")))] == [("cbp_sqrt",)]


def test_what_is_faster_and_better_beats():
    found = rows(*measurements())
    assert [round(row.seconds, 3) for row in found] == [0.1, 0.11, 0.12, 0.13, 0.6, 0.62]
    assert [(row.subject.network, row.preset) for row in unbeaten(found)] == [
        ("alexnet", "average"), ("alexnet", "bcnn"), ("alexnet", "improved_bcnn"), ("vgg16", "bcnn"),
    ]  # fmt: skip


def test_a_table_and_a_picture():
    table, picture = EXPERIMENT.blocks(*measurements())
    assert [row[:5] for row in table.rows[:2]] == [
        ("alexnet", "average", "448", "0.100", "30.0"), ("alexnet", "bcnn", "448", "0.110", "60.0"),
    ]  # fmt: skip
    assert table.rows[1][6] == "+30.0"
    assert {i for i, _ in table.strong} == {0, 1, 2, 5}
    assert isinstance(picture, Picture)
