"""Plans and their execution: nothing twice, nothing lost, failures told."""

from dataclasses import replace

import pytest
import torch

from bcnn.errors import NonFiniteTrainingError
from bcnn.experiments import EXPERIMENTS
from bcnn.experiments.jobs import before
from bcnn.experiments.jobs.frozen import Frozen
from bcnn.experiments.jobs.source import Source, source_of
from bcnn.experiments.jobs.tuned import SCHEMES, Tuned, tuned
from bcnn.experiments.plan import make_plan
from bcnn.experiments.results import FILE, Results
from bcnn.experiments.run import alone
from bcnn.experiments.run_folder import tuned_result
from bcnn.experiments.workshop import WHOLE
from bcnn.metrics import read
from bcnn.models.build import build_model
from bcnn.models.files import save
from tests.descriptors.images import draw
from tests.experiments.lab import make_shop, make_subject, measure


def test_jobs_that_artifacts_share_are_planned_once(tmp_path):
    shop = make_shop(tmp_path)
    subject = make_subject(shop)
    plan = make_plan(list(EXPERIMENTS), [subject], Results(), shop)
    jobs = [step.job for step in plan.steps if step.job is not None]
    assert len(jobs) == len(set(jobs)) < sum(share.num_cells for share in plan.shares)
    described = [step for step in plan.steps if step.source is not None and step.source.tuned is None]
    assert [step.source.network for step in described] == ["tiny", "tiny,tiny(cut=relu2)"]
    assert [own for own in described[0].poolings if not own.startswith(WHOLE)] == ["bilinear"]
    assert len(described[0].poolings) == len(set(described[0].poolings)) > 20
    assert described[0].num_images == 30
    assert plan.seconds > 0
    assert all(step.seconds > 0 for step in plan.steps)


def test_features_come_before_what_takes_them_and_tuned_networks_first(tmp_path):
    shop = make_shop(tmp_path)
    plan = make_plan(list(EXPERIMENTS), [make_subject(shop)], Results(), shop)
    seen: set = set()
    for step in plan.steps:
        if step.source is not None:
            assert step.source.tuned is None or step.source.tuned in seen
            seen.add(step.source)
        else:
            assert all(source in seen for source, _ in step.job.sources)
            seen.add(step.job)


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch):
    shop = make_shop(tmp_path)
    subject = make_subject(shop)
    results, failures = measure(shop, subject, ["table1_normalization"])
    assert not failures
    lines = results.path.read_text()
    monkeypatch.setattr(Frozen, "run", lambda self, shop: pytest.fail("done already"))
    again, _ = measure(shop, subject, ["table1_normalization"])
    assert again.path.read_text() == lines
    plan = make_plan(["table1_normalization"], [subject], again, shop)
    assert not plan.steps
    assert (plan.shares[0].num_done, plan.seconds) == (5, 0)


def test_a_killed_sweep_goes_on(tmp_path, monkeypatch):
    shop = make_shop(tmp_path)
    subject = make_subject(shop)
    whole = Frozen.run
    count = iter(range(100))

    def killed(self, shop):
        if next(count) == 2:
            raise KeyboardInterrupt
        return whole(self, shop)

    monkeypatch.setattr(Frozen, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        measure(shop, subject, ["table1_normalization"])
    assert len(Results(shop.out / FILE).measurements) == 2
    results, failures = measure(shop, subject, ["table1_normalization"])
    assert not failures
    assert len(results.measurements) == 5
    assert next(count) == 6  # three more, none twice


def test_one_failure_does_not_stop_the_others(tmp_path, monkeypatch):
    shop = make_shop(tmp_path)
    subject = make_subject(shop)
    whole = Frozen.run

    def broken(self, shop):
        if "matrix_log" in self.normalize:
            raise OSError("no more room")
        return whole(self, shop)

    monkeypatch.setattr(Frozen, "run", broken)
    results, failures = measure(shop, subject, ["table1_normalization"])
    assert len(results.measurements) == 3
    assert [failure.why for failure in failures] == ["no more room"] * 2


def test_without_features_their_jobs_are_left_out(tmp_path, monkeypatch):
    shop = make_shop(tmp_path)
    subject = make_subject(shop)

    def broken(*args, **options):
        raise OSError("disk gone")

    monkeypatch.setattr(Source, "extract", broken)
    results, failures = measure(shop, subject, ["table1_normalization", "gradient_precision"])
    assert len(failures) == 1
    assert {job.source for job in results.measurements} == {None}  # made-up matrices alone


@pytest.fixture
def diverged(tmp_path, monkeypatch):
    """Results of an artifact for which no training succeeds."""

    def diverges(self, shop):
        raise NonFiniteTrainingError("loss is not finite in epoch 1")

    def measured(artifact):
        shop = make_shop(tmp_path)
        subject = make_subject(shop)
        monkeypatch.setattr(Tuned, "run", diverges)
        results, failures = measure(shop, subject, [artifact])
        assert not failures
        return shop, subject, results

    return measured


def test_a_training_that_diverges_is_a_result(diverged):
    _, subject, results = diverged("table2_finetuning")
    assert results.failure(tuned(subject, "bcnn")[0]) == "loss is not finite in epoch 1"
    _, before, _ = EXPERIMENTS["table2_finetuning"].blocks(results, [subject])
    assert [row[2] for row in before.rows] == ["failed", "failed"]
    assert "sgnsqrt: loss is not finite in epoch 1" in before.note


def test_what_needs_a_training_that_diverged_has_failed_too(diverged):
    shop, subject, results = diverged("table3_newton_iterations")
    (after,) = [job for job in EXPERIMENTS["table3_newton_iterations"].jobs(subject) if before(job)]
    assert results.failure(after) == "so did cub, tiny, 32 px, tuned, bcnn, seed 0"
    plan = make_plan(["table3_newton_iterations"], [subject], results, shop)
    assert not plan.steps


def test_other_pictures_of_the_same_names_are_other_images(tmp_path):
    shop = make_shop(tmp_path)
    before = shop.images("cub")
    draw(tmp_path / "pictures" / "test" / "class_0" / "0.png", seed=99)
    assert make_shop(tmp_path).images("cub") != before


def test_other_weights_of_the_same_name_are_another_network(tmp_path):
    shop = make_shop(tmp_path)
    torch.manual_seed(0)
    shop.weights = str(tmp_path / "w.safetensors")
    digests = set()
    for seed in (0, 1):
        torch.manual_seed(seed)
        save(build_model("bcnn", backbone="tiny", weights=None, size=32), tmp_path / "w.safetensors")
        shop._models.clear()
        digests.add(shop.parameters("cub", "tiny", 32))
    assert len(digests) == 2


def test_without_fine_tuning_only_runs_that_are_there_count(lab, tmp_path):
    shop, subject, _ = lab
    empty = make_shop(tmp_path)
    own = make_subject(empty)
    plan = make_plan(["table2_finetuning", "table1_normalization"], [own], Results(), empty, finetune=False)
    assert plan.num_left_out == 2
    assert [(share.num_cells, share.num_todo) for share in plan.shares] == [(2, 0), (5, 5)]
    assert {step.job.kind for step in plan.steps if step.job is not None} == {"frozen"}
    again = make_shop(shop.out.parent, reuse=[shop.out / "finetune"])
    again.out = tmp_path / "elsewhere"
    plan = make_plan(["table2_finetuning"], [subject], Results(), again, finetune=False)
    assert plan.num_left_out == 0
    assert [step.seconds for step in plan.steps] == [0.0] * 2  # two schemes: to be read only


def test_runs_of_the_same_configuration_are_found_and_others_are_not(lab):
    shop, subject, results = lab
    job = tuned(subject, "lyapunov")[0]
    assert job.finished(shop) is not None
    assert job.run(shop).result.accuracy == results.get(job).accuracy
    for place in (shop.out, shop.out / "finetune", job.finished(shop)):
        again = make_shop(shop.out.parent, reuse=[place])
        again.out = shop.out.parent / "elsewhere"
        assert job.finished(again) == job.finished(shop)
        assert replace(job, epochs=7).finished(again) is None
        assert replace(job, seed=7).finished(again) is None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_been_trained(lab, scheme):
    _, subject, results = lab
    for job in tuned(subject, scheme):
        own = results.get(job)
        assert own.num_test == 12
        assert [epoch.epoch for epoch in own.history] == [0, 1]
        assert (own.before is not None, own.num_skipped) == (True, 0)


def test_seeds_are_jobs_of_their_own(lab):
    shop, _, results = lab
    first, second = tuned(make_subject(shop, seeds=(0, 1)), "bcnn")
    assert results.get(first) is not None
    assert results.get(second) is None
    assert first.new_folder(shop) != second.new_folder(shop)


def test_two_at_once_in_one_folder_are_refused(tmp_path):
    with alone(tmp_path), pytest.raises(ValueError, match="got another process; wait for it"), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass


def test_a_run_that_is_not_finished_lends_no_weights(tmp_path):
    shop = make_shop(tmp_path)
    job = tuned(make_subject(shop), "bcnn")[0]
    with pytest.raises(ValueError, match="expected a finished run"):
        job.best(shop)


def test_broken_images_are_kept_in_mind(tmp_path):
    shop = make_shop(tmp_path)
    (tmp_path / "pictures" / "test" / "class_0" / "9.png").write_bytes(b"no picture")
    subject = make_subject(shop)
    results, failures = measure(shop, subject, ["table1_normalization"])
    assert not failures
    assert list(shop.broken["cub"]) == ["test/class_0/9.png"]
    (own, *_) = (measurement.result for measurement in results.measurements.values())
    assert (own.num_broken, own.num_test) == (1, 12)


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / ".descriptors-abc").mkdir()
    (tmp_path / ".descriptors-abc" / "descriptors").write_bytes(b"0" * 100)
    with alone(tmp_path):
        assert not list(tmp_path.glob(".descriptors-*"))


def test_a_run_of_something_else_is_told(lab, tmp_path):
    shop, subject, _ = lab
    folder = tuned(subject, "bcnn")[0].finished(shop)
    (tmp_path / "metrics.json").write_text("{}")
    (tmp_path / "predictions.csv").write_text("")
    with pytest.raises(ValueError, match="expected the metrics of a run of bcnn train, got"):
        read(tmp_path / "metrics.json")
    run = read(folder / "metrics.json")
    assert (tuned_result(run, folder).num_broken, run.broken) == (0, {})


def test_a_tuned_network_that_is_gone_is_tuned_again(lab, tmp_path):
    _, subject, results = lab
    (after,) = [job for job in EXPERIMENTS["table3_newton_iterations"].jobs(subject) if before(job)]
    rest = Results()
    rest.include(results)
    del rest.measurements[after]
    other = make_shop(tmp_path)  # of results alone, without run folders
    other.data = lab[0].data
    for finetune, expected in ((True, [*before(after), after]), (False, [])):
        plan = make_plan(["table3_newton_iterations"], [subject], rest, other, finetune=finetune)
        assert [step.job for step in plan.steps if step.job is not None] == expected


@pytest.mark.parametrize("error", [MemoryError(), OSError("disk gone")])
def test_too_large_a_step_does_not_stop_the_others_but_a_full_disk_does(tmp_path, monkeypatch, error):
    shop = make_shop(tmp_path)
    subject = make_subject(shop)

    def fail(*args):
        raise error

    if isinstance(error, MemoryError):
        monkeypatch.setattr(Frozen, "run", fail)
        _, failures = measure(shop, subject, ["table1_normalization"])
        assert [failure.why for failure in failures] == ["MemoryError"] * 5
    else:
        monkeypatch.setattr(Results, "add", fail)
        with pytest.raises(OSError, match="disk gone"):
            measure(shop, subject, ["table1_normalization"])


def test_seeds_share_what_is_described_before(tmp_path):
    save(build_model("bcnn", backbone="tiny", weights=None, size=32), tmp_path / "w.safetensors")
    shop = make_shop(tmp_path)
    shop.weights = str(tmp_path / "w.safetensors")
    jobs = tuned(make_subject(shop, seeds=(0, 1)), "bcnn")
    for job in jobs:
        assert job.run(shop).result.before is not None
    (folder,) = [path for path in (shop.out / "descriptors").iterdir() if "_before_" in path.name]
    stamps = {path.stat().st_mtime_ns for path in folder.rglob("chunk-*")}
    assert len(stamps) == 2  # one of each split, written once
    shop.weights = None  # drawn by the seed
    assert len({job.before_folder(shop) for job in jobs}) == 2


def test_runs_on_other_pictures_of_the_same_names_are_not_taken(lab, tmp_path):
    shop, subject, _ = lab
    job = tuned(subject, "bcnn")[0]
    again = make_shop(shop.out.parent, reuse=[shop.out / "finetune"])
    again.out = tmp_path
    assert job.finished(again) is not None
    assert replace(job, images="0" * 16).finished(again) is None


def test_features_are_gone_on_with_however_their_weights_are_called(tmp_path, monkeypatch):
    save(build_model("bcnn", backbone="tiny", weights=None, size=32), tmp_path / "w.safetensors")
    monkeypatch.chdir(tmp_path)
    shop = make_shop(tmp_path)
    for name in ("w.safetensors", str(tmp_path / "w.safetensors")):
        shop.weights = name
        shop._models.clear()
        subject = make_subject(shop, weights="w.safetensors")
        source_of(subject).extract(shop, ["bilinear"])
    assert source_of(subject).num_missing(shop, ["bilinear"]) == 0
