"""What tables say of measurements, checked against the statistics themselves."""

import numpy as np
import pytest

from bcnn.classify.accuracy import mcnemar, wilson
from bcnn.classify.paired import mean_interval, paired_interval
from bcnn.experiments.contract import Cell
from bcnn.experiments.jobs.tuned import tuned
from bcnn.experiments.records import Failed, Outcome, Subject
from bcnn.experiments.results import Results
from bcnn.experiments.run_folder import TunedResult
from bcnn.experiments.tables import NOT_RUN, accuracy_blocks, accuracy_table, measured, title_of
from tests.experiments.lab import info, tuned_outcome

SUBJECT = Subject("cub", "abc", "vgg16", seeds=(0, 1))
TRUTH = (0, 1, 2, 0, 1, 2, 0, 1, 2, 0)


def answers(num_wrong: int, *, shift: int = 0) -> tuple[int, ...]:
    return tuple((t + 1) % 3 if shift <= i < shift + num_wrong else t for i, t in enumerate(TRUTH))


def result(num_wrong: int, *, shift: int = 0, **more) -> Outcome[TunedResult]:
    own = {"truth": TRUTH, "predicted": answers(num_wrong, shift=shift), "num_test": len(TRUTH), **more}
    return tuned_outcome(accuracy=1 - num_wrong / len(TRUTH), **own)


def filled(**schemes) -> Results:
    """Results of the seeds of each scheme."""
    results = Results()
    results.add_subject(SUBJECT, info(SUBJECT))
    for scheme, own in schemes.items():
        for job, value in zip(tuned(SUBJECT, scheme), own, strict=False):
            results.add(job, value, 1.0)
    return results


def cell(scheme, paper=None, **options) -> Cell:
    return Cell((scheme,), tuned(SUBJECT, scheme), paper, **options)


def test_one_seed_has_wilsons_interval_and_mcnemars_test():
    results = filled(bcnn=[result(4)], lyapunov=[result(1, shift=7)])
    table = accuracy_table(results, [cell("bcnn", 50.0), cell("lyapunov", 60.0)], ["scheme"], "T")
    base, row = table.rows
    low, high = wilson(6, 10)
    assert base[1:5] == ("50.0", "60.0 (of 2 seeds 1 not run)", f"{100 * low:.1f} to {100 * high:.1f}", "+10.0")
    assert base[5:9] == ("", "", "", "")
    right_a = np.equal(TRUTH, answers(1, shift=7))
    right_b = np.equal(TRUTH, answers(4))
    low, high = paired_interval(right_a, right_b)
    assert row[5:8] == ("+10.0", "+30.0", f"{100 * low:+.1f} to {100 * high:+.1f}")
    assert float(row[8]) == pytest.approx(mcnemar(right_a, right_b), rel=0.02)
    assert (base[9], row[9]) == (row[8], "")  # to the best, which is the second
    assert table.strong == {(1, 2)}


def test_several_seeds_have_mean_spread_and_a_bootstrap_over_images():
    results = filled(bcnn=[result(4), result(2)])
    own = measured(results, cell("bcnn"))
    assert own.accuracy == pytest.approx(0.7)
    assert own.text == "70.0 ± 14.1"
    assert own.interval == mean_interval(own.right)
    assert own.right.tolist() == [0, 0, 0.5, 0.5, 1, 1, 1, 1, 1, 1]


def test_what_was_not_run_or_failed_says_so():
    bad = Outcome(Failed("diverged in epoch 1"))
    results = filled(bcnn=[result(4)], identity=[bad, bad], unrolled=[bad], log=[result(2), bad])
    cells = [cell("bcnn"), cell("lyapunov", 85.8), cell("identity"), cell("unrolled"), cell("log")]
    table = accuracy_table(results, cells, ["scheme"], "T")
    ours = [row[2] for row in table.rows[1:]]
    assert ours == [NOT_RUN, "failed", "failed, 1 not run", "80.0 (of 2 seeds 1 failed)"]
    assert table.rows[1][1] == "85.8"
    assert table.faint == {(1, 2), (2, 2), (3, 2)}
    assert "identity: diverged in epoch 1" in table.note
    assert all(text == "" for text in table.rows[1][3:])


def test_values_without_predictions_have_no_paired_test():
    results = filled(bcnn=[result(4, before=0.5)], lyapunov=[result(1, before=0.6)])
    cells = [cell("bcnn", value="before"), cell("lyapunov", value="before")]
    table = accuracy_table(results, cells, ["scheme"], "T")
    assert table.rows[1][6:] == ("+10.0", "", "", "")
    low, high = wilson(5, 10)
    assert table.rows[0][3] == f"{100 * low:.1f} to {100 * high:.1f}"


def test_other_test_images_are_not_compared():
    shorter = result(1, truth=TRUTH[:9], predicted=answers(1)[:9], num_test=9)
    results = filled(bcnn=[result(4)], lyapunov=[shorter])
    table = accuracy_table(results, [cell("bcnn"), cell("lyapunov")], ["scheme"], "T")
    assert table.rows[1][7:] == ("", "", "")


def test_the_title_says_that_it_is_a_part_of_the_dataset():
    results = filled()
    assert "3 of 200 classes, 30 of 11788 images" in title_of(results, SUBJECT, 448)
    assert title_of(results, SUBJECT, 448).endswith("VGG-D (vgg16) at 448 px")


def test_the_overview_has_every_network_of_the_paper_and_gaps():
    results = filled(bcnn=[result(4)])
    cells = lambda subject: [Cell(("plain",), tuned(subject, "bcnn"), 50.0 if subject.network == "vgg_m" else None)]  # noqa: E731
    overview, detail = accuracy_blocks(cells, ["scheme"])(results, [SUBJECT])
    assert overview.header[:4] == ("network", "scheme", "Birds, paper", "Birds, ours")
    rows = {row[0]: row[2:] for row in overview.rows}
    assert rows["VGG-M (vgg_m)"] == ("50.0", NOT_RUN) * 3
    assert rows["VGG-D (vgg16)"][:2] == ("-", "60.0 (of 2 seeds 1 not run)")
    assert detail.rows[0][0] == "plain"


def test_the_same_measurements_are_shown_once():
    results = filled(bcnn=[result(4)])
    other = Subject("cub", "abc", "vgg16", seeds=(0, 1), dim=8)  # differs in what does not matter
    cells = lambda subject: [Cell(("plain",), tuned(subject, "bcnn"))]  # noqa: E731
    assert len(accuracy_blocks(cells, ["scheme"])(results, [SUBJECT, other])) == 2


def test_certainty_is_never_claimed_for_want_of_errors():
    results = filled(bcnn=[result(0), result(0)], lyapunov=[result(0), result(0)])
    own = measured(results, cell("bcnn"))
    assert own.interval == wilson(10, 10)
    table = accuracy_table(results, [cell("bcnn"), cell("lyapunov")], ["scheme"], "T")
    assert table.rows[1][6:] == ("+0.0", "", "1", "1")


def test_images_of_other_classes_are_not_compared():
    other = result(1, truth=TRUTH[1:] + TRUTH[:1])
    results = filled(bcnn=[result(4)], lyapunov=[other])
    table = accuracy_table(results, [cell("bcnn"), cell("lyapunov")], ["scheme"], "T")
    assert table.rows[1][7:] == ("", "", "")


def test_the_overview_takes_a_column_from_one_subject():
    results = filled(bcnn=[result(4)])
    full = Subject("cub", "abc", "vgg16", weights="mine", seeds=(0,))
    results.add_subject(full, info(full))
    for scheme in ("bcnn", "lyapunov"):
        results.add(tuned(full, scheme)[0], result(1), 1.0)
    cells = lambda subject: [Cell((scheme,), tuned(subject, scheme)) for scheme in ("bcnn", "lyapunov")]  # noqa: E731
    overview, first, second = accuracy_blocks(cells, ["scheme"])(results, [SUBJECT, full])
    rows = {row[1]: row[3] for row in overview.rows if row[0] == "VGG-D (vgg16)"}
    assert rows == {"bcnn": "90.0", "lyapunov": "90.0"}
    assert first.title != second.title
    assert "weights mine" in second.title


def test_one_seed_of_three_is_part_of_them_and_the_latest_of_equals_counts():
    results = filled(bcnn=[result(4), result(2)])
    first = Subject("cub", "abc", "vgg16", seeds=(0,))
    cells = lambda subject: [Cell(("plain",), tuned(subject, "bcnn"))]  # noqa: E731
    overview, detail = accuracy_blocks(cells, ["scheme"], size="tuned_size")(results, [first, SUBJECT])
    assert detail.title.endswith("50 epochs, 2 seeds")
    assert detail.rows[0][2] == "70.0 ± 14.1"
    assert f"Ours: {detail.title}." == overview.note
    other = Subject("cub", "def", "vgg16", seeds=(0, 1))  # all of the dataset, say
    results.add_subject(other, info(other, num_classes=200, num_images=11788))
    for job in tuned(other, "bcnn"):
        results.add(job, result(1), 1.0)
    overview, *details = accuracy_blocks(cells, ["scheme"])(results, [first, SUBJECT, other])
    assert len(details) == 2
    assert next(row for row in overview.rows if row[0] == "VGG-D (vgg16)")[3] == "90.0 ± 0.0"
    assert overview.note == "Ours: Birds, 200 classes, 11788 images; VGG-D (vgg16) at 448 px."
