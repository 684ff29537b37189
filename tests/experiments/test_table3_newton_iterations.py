"""Table 3."""

from bcnn.experiments.jobs import before
from bcnn.experiments.jobs.tuned import tuned
from bcnn.experiments.records import Subject
from bcnn.experiments.table3_newton_iterations import EXPERIMENT, left, right, time_job


def test_left_is_the_papers():
    own = left(Subject("cars", "abc", "vgg16"))
    assert [(cell.labels[0], cell.paper) for cell in own] == [
        ("0", 82.9), ("1", 85.0), ("5", 87.0), ("10", 86.8), ("20", 86.7), ("SVD", 86.7),
    ]  # fmt: skip


def test_right_has_both_readings_of_faster():
    own = {cell.labels[0]: cell.paper for cell in right(Subject("cub", "abc", "vgg16"))}
    assert own == {
        "no square root at all": 84.0,
        "LYAP": 85.8,
        "SVD": 85.5,
        "Faster: no square root in training": 85.3,
        "Faster: identity gradient": 85.3,
        "unrolled": None,
    }


def test_a_network_trained_without_the_root_gets_it_afterwards(lab):
    shop, subject, results = lab
    cell = next(cell for cell in right(subject) if cell.labels[0].endswith("no square root in training"))
    for job, base in zip(cell.jobs, tuned(subject, "bcnn"), strict=True):
        assert job.source.tuned == base
        assert before(job) == (base,)
        assert job.normalize[0] == "matrix_sqrt"
        assert results.get(job).num_test == 12
        descriptors = job.source.stored(shop, "bilinear")
        plain = left(subject)[0].jobs[0].source.stored(shop, "bilinear")
        assert descriptors.config.digest != plain.config.digest  # other weights


def test_times_are_of_all_methods_in_the_same_rounds(lab):
    _, subject, results = lab
    own = results.get(time_job(subject))
    assert len(own.time_ms) == len(own.ratio) == len(time_job(subject).methods) == 7
    assert own.ratio[-1] == 1.0
    assert min(own.time_ms) > 0
    table = next(t for t in EXPERIMENT.blocks(results, [subject]) if "time of the square root" in t.title)
    rows = {row[0]: row for row in table.rows}
    assert rows["5"][1] == "4"
    assert rows["SVD"][1] == "22"
    assert rows["eigen"][1] == "-"
    assert rows["SVD"][4] == "1.00"
    i = time_job(subject).methods.index("matrix_sqrt(forward='newton_schulz', num_iters=5)")
    assert rows["5"][2] == f"{own.time_ms[i]:.2f}"


def test_every_method_names_its_algorithm():
    """On a GPU the default is another one, which knows no precision."""
    assert all("forward=" in text for text in time_job(Subject("cub", "abc", "vgg16")).methods)


def test_times_tell_the_machine(lab):
    _, subject, results = lab
    (times,) = [block for block in EXPERIMENT.blocks(results, [subject]) if "time of the square root" in block.title]
    assert results.measurements[time_job(subject)].versions["machine"] in times.title
