"""The paper prints some numbers in several places: transcriptions have to agree with each other."""

import csv
from importlib.resources import files

import pytest

from bcnn.experiments import EXPERIMENTS, paper

DATASETS = ("cub", "cars", "aircraft")
NETWORKS = ("vgg_m", "vgg16")


PRINTED = [name for name, own in EXPERIMENTS.items() if f"experiments/paper/{name}.csv" in own.about]


def test_the_papers_tables_and_figures_are_transcribed():
    assert {name for name in EXPERIMENTS if name.startswith(("table", "figure"))} <= set(PRINTED)


@pytest.mark.parametrize("name", [*PRINTED, "datasets", "networks"])
def test_every_line_has_every_column(name):
    text = (files("bcnn.experiments") / "paper" / f"{name}.csv").read_text()
    lines = list(csv.reader(text.splitlines()))
    assert len({len(line) for line in lines}) == 1
    assert len(lines) > 2


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("normalization", ["sgnsqrt", "sqrt + sgnsqrt"])
def test_before_fine_tuning_is_table_1(dataset, network, normalization):
    where = {"network": network, "normalization": normalization}
    before = paper.printed("table2_finetuning", dataset, when="before", **where)
    assert before == paper.printed("table1_normalization", dataset, **where)


@pytest.mark.parametrize("dataset", DATASETS)
def test_no_iteration_and_exponent_1_are_the_baseline(dataset):
    where = {"network": "vgg16", "normalization": "sgnsqrt"}
    baseline = paper.printed("table1_normalization", dataset, **where)
    assert baseline == paper.printed("table3_newton_iterations", dataset, part="forward", column="0")
    assert baseline == paper.printed("figure2_exponent", dataset, exponent="1")


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_svd_and_exponent_one_half_are_the_square_root(dataset):
    root = paper.printed("table1_normalization", dataset, network="vgg16", normalization="sqrt + sgnsqrt")
    assert root == paper.printed("table3_newton_iterations", dataset, part="forward", column="SVD")
    assert root == paper.printed("table3_newton_iterations", dataset, part="forward", column="20")
    assert root == paper.printed("figure2_exponent", dataset, exponent="0.5")


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize(("network", "title"), [("vgg_m", "VGG-M"), ("vgg16", "VGG-D")])
@pytest.mark.parametrize(("normalization", "method"), [("sgnsqrt", "B-CNN"), ("sqrt + sgnsqrt", "Improved B-CNN")])
def test_after_fine_tuning_is_table_4(dataset, network, title, normalization, method):
    after = paper.printed("table2_finetuning", dataset, network=network, normalization=normalization, when="after")
    assert after == paper.printed("table4_prior_work", dataset, method=method, network=title)


@pytest.mark.parametrize("dataset", DATASETS)
def test_lyapunov_gradients_are_those_of_table_2(dataset):
    after = paper.printed("table2_finetuning", dataset, network="vgg16", normalization="sqrt + sgnsqrt", when="after")
    assert after == paper.printed("table3_newton_iterations", dataset, part="backward", column="LYAP")


def test_what_is_not_printed_is_none():
    assert paper.printed("table4_prior_work", "cars", method="CBP") is None
    assert paper.dataset_title("mine") == "mine"
    assert paper.network_title("vgg16") == "VGG-D (vgg16)"
