"""Table 4."""

from dataclasses import replace

import pytest
import torch

from bcnn.experiments.contract import Cell
from bcnn.experiments.jobs.source import source_of
from bcnn.experiments.jobs.system import SystemResult, system
from bcnn.experiments.jobs.tuned import partner_of
from bcnn.experiments.records import Subject
from bcnn.experiments.systems import SYSTEMS, rows_of
from bcnn.experiments.table4_prior_work import COSTS, EXPERIMENT, NAMES, TUNED, cells, preset
from bcnn.experiments.tables import measured
from bcnn.models.build import build_model
from bcnn.models.weights import WEIGHTS
from bcnn.pooling.head import PAPERS, PRESETS
from bcnn.report.document import Picture
from tests.experiments.lab import make_shop, make_subject, measure

FIRST_COST = 9  # the column of the width


def test_every_system_is_there():
    own = cells(Subject("cub", "abc", "vgg16", boxes=True))
    assert [cell.labels[0] for cell in own if cell.labels[1] == "frozen"] == list(SYSTEMS)
    assert [cell.labels[0] for cell in own if cell.labels[1] == "fine-tuned"] == list(TUNED)


def test_systems_can_be_chosen():
    own = cells(Subject("cub", "abc", "vgg16", systems=("cbp", "stn")))
    assert [cell.labels for cell in own] == [("cbp", "frozen"), ("cbp", "fine-tuned"), ("stn", "fine-tuned")]
    assert not [name for name in NAMES if "," in name]  # the command line separates them by commas


def test_a_chosen_system_is_compared_with_the_plain_one(lab):
    _, subject, results = lab
    ours = EXPERIMENT.blocks(results, [replace(subject, systems=("cbp",))])[1]
    every = EXPERIMENT.blocks(results, [subject])[1]
    assert [row[0] for row in ours.rows] == ["cbp", "cbp"]
    assert set(ours.rows) <= set(every.rows)
    assert all(row[6] for row in ours.rows)  # the gain


def test_memory_is_told(lab):
    _, subject, results = lab
    own = results.get(SYSTEMS["improved_bcnn"].job(subject))
    assert own.head_mb > 32 * 32 * 4 / 1e6  # a matrix
    assert own.image_mb >= own.head_mb
    ours = EXPERIMENT.blocks(results, [subject])[1]
    assert ours.header[-len(COSTS) :] == COSTS
    assert [row for row in ours.rows if row[1] == "frozen" and not row[-1]] == []


def test_systems_that_take_boxes_are_for_datasets_that_have_them():
    assert set(SYSTEMS) - set(rows_of(Subject("leaves", "abc", "vgg16"))) == {"foreground"}


def test_with_the_papers_ridge_the_rows_are_those_of_table_1():
    own = cells(Subject("cub", "abc", "vgg16", ridge="paper"))
    assert [cell.labels[0] for cell in own if cell.labels[1] == "frozen"] == list(PAPERS)


def test_rows_of_the_paper_that_have_a_system_of_ours_are_printed_there():
    from bcnn.experiments import paper

    printed = {line["method"] for line in paper.table("table4_prior_work")}
    ours = {row.printed for row in SYSTEMS.values()} - {""}
    assert ours <= printed
    assert printed - ours == {"STNs"}  # fine-tuned alone


def test_all_rows_of_the_paper_and_ours(lab):
    _, subject, results = lab
    printed, ours, picture = EXPERIMENT.blocks(results, [subject])
    assert len(printed.rows) == 13
    assert printed.rows[-1] == ("KP", "VGG-D", "-", "-", "86.2", "92.4", "86.9")
    assert len(ours.rows) == len(rows_of(subject)) + len(TUNED)
    assert "not run" not in [row[4] for row in ours.rows]
    assert isinstance(picture, Picture)
    widths = {row[0]: row[FIRST_COST] for row in ours.rows if row[1] == "frozen"}
    assert widths["cbp"] == widths["cbp_sqrt"] == "8192"
    assert widths["kernel"] == str(1 + 32 + 3 * 4096)


@pytest.mark.parametrize("name", ["bcnn", "improved_bcnn", "o2p"])
def test_presets_are_the_same_numbers_as_in_table_1(lab, name):
    _, subject, results = lab
    ours = results.get(SYSTEMS[name].job(subject))
    theirs = results.get(preset(subject, PRESETS[name]))
    assert ours.accuracy == theirs.accuracy
    assert ours.predicted == theirs.predicted


def test_a_system_is_what_the_network_says_itself(lab):
    shop, subject, results = lab
    job = SYSTEMS["lrbp"].job(subject)
    model = job.source.model(shop, job.head)
    own = results.get(job)
    assert isinstance(own, SystemResult)
    assert own.descriptor_length == model.descriptor_length
    assert own.num_parameters > 0
    assert own.head_ms > 0
    assert own.network_ms > 0


def test_table_1_fills_in_for_presets(lab):
    _, subject, results = lab
    other = replace(subject, rescale="median")  # nothing of it is measured
    found = EXPERIMENT.blocks(results, [subject, other])
    assert len(found) == 3
    cell = Cell(("bcnn", "frozen"), (preset(subject, PRESETS["bcnn"]),))
    assert measured(results, cell) is not None


def test_a_gap_that_another_subject_fills_is_none(lab):
    _, subject, results = lab
    longer = Subject(**{**vars(subject), "epochs": 50})  # frozen results are the same, tuned ones are missing
    ours = EXPERIMENT.blocks(results, [subject, longer])[1]
    assert len(ours.rows) == len(rows_of(subject)) + len(TUNED)
    alone = EXPERIMENT.blocks(results, [longer])[1]
    assert [row[4] for row in alone.rows].count("not run") == len(TUNED)


def test_a_gap_at_another_size_is_one(lab):
    _, subject, results = lab
    larger = Subject(**{**vars(subject), "size": 64})  # its tuned results are the same
    ours = EXPERIMENT.blocks(results, [subject, larger])[1]
    assert [row[4] for row in ours.rows if row[3] == "64"] == ["not run"] * len(rows_of(subject))


def test_two_networks_stand_side_by_side():
    job = SYSTEMS["two networks"].job(Subject("cub", "abc", "vgg_m"))
    assert job.source.network == "vgg_m,vgg16"  # the paper's pair
    assert partner_of("vgg16") == "alexnet"


def test_a_front_is_another_source(tmp_path):
    shop = make_shop(tmp_path)
    subject = make_subject(shop)
    plain = source_of(subject)
    front = replace(plain, front="stn(transformers=2, scale=0.5, start=tiling)")
    assert plain.slug != front.slug
    job = system(front, "average")
    front.extract(shop, [job.head])
    found = job.run(shop).result
    assert found.descriptor_length == 2 * 32  # two crops side by side
    assert torch.isfinite(torch.tensor(found.accuracy))


def test_what_is_described_is_not_described_again(tmp_path):
    shop = make_shop(tmp_path)
    subject = make_subject(shop)
    job = SYSTEMS["fisher"].job(subject)
    job.source.extract(shop, [job.head])
    assert job.source.num_missing(shop, [job.head]) == 0
    results, failures = measure(shop, subject, ("table1_normalization",))
    assert not failures
    assert job not in results


@pytest.mark.parametrize("network", ["alexnet", "vgg16", "vgg_m", "resnet50", "tiny"])
def test_both_networks_can_be_given_the_same_image(network):
    pair = [network, partner_of(network)]
    model = build_model("bcnn", backbone=pair, pooling="asymmetric", weights=None, size=64)
    assert len(model.branches) == 2
    filters = {own.preprocessing.interpolation for own in WEIGHTS.values() if own.backbone in pair}
    assert len(filters) <= 1
