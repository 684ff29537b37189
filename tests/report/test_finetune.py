"""Runs beside each other: seeds are averaged, other options tell rows apart."""

from dataclasses import replace
from statistics import mean, stdev

import pytest

from bcnn.files import read_csv, write_csv
from bcnn.metrics import Epoch
from bcnn.report import curves
from bcnn.report import finetune as report
from tests.report.runs import FINETUNE, metrics_of


def metrics(*, seed=0, after=0.6, before=0.5, preset="improved_bcnn", selected_on="validation", **options):
    changes = {"selected_on": selected_on, "best_epoch": 10 + seed, "num_skipped": seed, "before": {"accuracy": before}}
    config = {"seed": seed, "preset": [preset], "spec": f"cub:{seed}", "lr": 0.001, **options}
    return metrics_of(preset=preset, accuracy=after, config=config, finetune={**FINETUNE, **changes})


def test_seeds_are_averaged():
    accuracies = [0.6, 0.62, 0.67]
    (record,) = report.records_of([metrics(seed=i, after=a, backward="svd") for i, a in enumerate(accuracies)])
    assert record["name"] == "improved_bcnn"  # all have the same option
    assert record["num_seeds"] == 3
    assert record["after"] == pytest.approx(mean(accuracies))
    assert record["after_sd"] == pytest.approx(stdev(accuracies))
    assert record["gain"] == pytest.approx(mean(accuracies) - 0.5)
    assert record["num_skipped"] == 3
    assert report.LAYOUT.cells(record)[:5] == ("improved_bcnn", "3", "50.0 ± 0.0", "63.0 ± 3.6", "+13.0 ± 3.6")


def test_options_that_differ_name_the_row():
    runs = [metrics(preset="bcnn"), metrics(backward="svd"), metrics(backward="lyapunov", seed=1), metrics(lr=0.01)]
    names = [record["name"] for record in report.records_of(runs)]
    assert names == [
        "bcnn, lr 0.001", "improved_bcnn, lr 0.001, backward svd", "improved_bcnn, lr 0.001, backward lyapunov",
        "improved_bcnn, lr 0.01",
    ]  # fmt: skip


def test_one_seed_has_no_spread():
    (record,) = report.records_of([metrics()])
    assert report.LAYOUT.cells(record)[3] == "60.0"


def test_a_choice_on_the_test_split_makes_a_table_of_its_own():
    titles = [record["title"] for record in report.records_of([metrics(), metrics(selected_on="test")])]
    assert "epoch chosen on validation" in titles[0]
    assert "EPOCH CHOSEN ON THE TEST SPLIT" in titles[1]


def test_runs_without_fine_tuning_are_refused():
    with pytest.raises(ValueError, match="expected runs of bcnn train --finetune"):
        report.records_of([replace(metrics(), finetune=None)])


def test_the_csv_file_gives_the_same_table(tmp_path):
    records = report.write([metrics(seed=i) for i in range(2)], tmp_path)
    assert report.LAYOUT.markdown(read_csv(tmp_path / "comparison.csv")) == (tmp_path / "comparison.md").read_text()
    assert "± " in report.LAYOUT.markdown(records)
    assert (tmp_path / "comparison.png").stat().st_size > 1000
    write_csv(tmp_path / "one.csv", report.records_of([metrics()]))
    assert "60.0" in report.LAYOUT.markdown(read_csv(tmp_path / "one.csv"))


def test_curves_with_and_without_validation(tmp_path):
    history = [Epoch(i, 1 / i if i else None, 0.5 if i else None, None, None) for i in range(3)]
    curves.plot(history, 2, tmp_path / "a.png", selected_on="nothing: last epoch")
    held_out = [replace(record, val_loss=1.0, val_accuracy=0.4) for record in history]
    curves.plot(held_out, 1, tmp_path / "b.png", selected_on="test")
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes()
