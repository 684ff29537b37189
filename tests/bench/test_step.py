"""`bcnn bench step`: the cut graph gives the same gradients, the parts add up, the files are those of the run."""

import runpy
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from typer.testing import CliRunner

from bcnn.bench import step as measure
from bcnn.bench.settings import Step, choose
from bcnn.bench.step import BARE, HEADS, LAYOUT
from bcnn.cli import app
from bcnn.files import read_csv
from bcnn.models.build import build_model

UPDATE_DOCS = Path(__file__).parents[2] / "benchmarks" / "update_docs.py"
PARTS = [column for column, _ in measure.PARTS.values()]
SMALL = choose(Step, quick=True, size=32)


@pytest.fixture(scope="module")
def rows():
    heard = []
    settings = choose(Step, quick=True, size=32, batch_size=2, num_classes=3)
    found = measure.run(settings, lambda *event: heard.append(event))
    assert heard == [("steps", i + 1, len(heard)) for i in range(len(heard))]
    return found


@pytest.mark.filterwarnings("ignore::bcnn.errors.GradientExceptionWarning")
@pytest.mark.parametrize("size", [32, 64])  # fewer and more locations than channels
@pytest.mark.parametrize("case", HEADS)
def test_the_cut_graph_gives_the_gradients_of_the_whole_one(case, size):
    whole = build_model("bcnn", backbone="tiny", num_classes=5, weights=None)
    model = measure.models_of(whole)[case]
    images, labels = torch.randn(3, 3, size, size), torch.tensor([0, 4, 2])
    functional.cross_entropy(model(images), labels).backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    order = []
    measure.backward_in_parts(model, images, labels, order.append)
    assert order == ["network", "head", "classifier", "head", "network"]
    reached = {name.split(".")[0] for name, gradient in expected.items() if gradient.any()}
    assert reached == {"branches", "scorer"}
    for name, parameter in model.named_parameters():
        scale = float(expected[name].abs().max())
        torch.testing.assert_close(parameter.grad, expected[name], rtol=0, atol=1e-5 * scale)


def test_heads_share_the_parameters_and_differ_in_the_matrix_function():
    models = measure.models_of(build_model("bcnn", backbone="tiny", num_classes=5, weights=None))
    parameters = {tuple(map(id, model.parameters())) for model in models.values()}
    assert len(parameters) == 1
    assert all(model.training for model in models.values())
    for case, config in HEADS.items():
        matrix = [text for text in config.normalize if text.startswith("matrix_")]
        assert len(matrix) == (case != BARE)
        assert config.normalize[len(matrix) :] == HEADS[BARE].normalize


def test_an_update_takes_its_time_and_moves_nothing(tmp_path):
    training = measure._set_up(SMALL, tmp_path)
    before = [parameter.clone() for parameter in training.models[BARE].parameters()]
    laps = measure._step(training, "improved_bcnn", training.batches(1))
    assert set(laps) == {"wait", "network", "head", "classifier", "update"}
    assert all(lap > 0 for lap in laps.values())
    after = list(training.models[BARE].parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all("momentum_buffer" in training.optimizer.state[parameter] for parameter in after)
    group = training.optimizer.param_groups[0]
    assert (group["momentum"], group["weight_decay"]) == (0.9, 5e-4)


def test_the_parts_add_up(rows):
    assert [row["case"] for row in rows] == list(HEADS)
    for row in rows:
        assert row["step_ms"] == pytest.approx(sum(row[part] for part in PARTS))
        assert row["share"] == pytest.approx(row["matrix_ms"] / row["step_ms"])
        assert row["data_alone_ms"] > 0
    assert rows[0]["matrix_ms"] == rows[0]["share"] == rows[0]["share_spread"] == 0
    assert len({row["pooling_ms"] for row in rows}) == len({row["data_alone_ms"] for row in rows}) == 1
    assert "tiny at 32 px, d=32, n=16, 3 classes, weights random" in rows[0]["group"]


def test_medians_and_differences_are_taken_round_by_round():
    def laps(head):
        return {"wait": 1.0, "network": 6.0, "head": head, "classifier": 2.0, "update": 1.0}

    rounds = [measure._Round(3.0, {BARE: laps(a), "improved_bcnn": laps(b)}) for a, b in [(2, 4), (90, 100), (2, 8)]]
    row = measure._record("group", "improved_bcnn", rounds, batch=2)
    assert (row["pooling_ms"], row["matrix_ms"], row["network_ms"]) == (1, 3, 3)  # medians of 2, 90, 2 and of 2, 10, 6
    assert row["step_ms"] == 9
    assert row["share"] == pytest.approx(1 / 3)
    assert row["share_spread"] == pytest.approx((6 / 18 - 10 / 110) / 2)


def test_photographs_are_files_of_the_usual_size(tmp_path):
    first, second, *_ = measure._photographs(tmp_path)
    assert first.open().size == (500, 375)
    assert first.open().tobytes() != second.open().tobytes()
    assert 20_000 < first.source.stat().st_size < 150_000


def test_the_command_writes_what_it_prints(tmp_path):
    options = ["--backbone", "tiny", "--size", "32", "--batch-size", "2", "--classes", "3", "--rounds", "1"]
    result = CliRunner().invoke(app, ["bench", "step", *options, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    (path,) = tmp_path.glob("step_*.csv")
    assert {p.suffix for p in tmp_path.iterdir()} == {".csv", ".md", ".png"}
    assert path.with_suffix(".png").stat().st_size > 1000
    records = read_csv(path)
    assert [record["case"] for record in records] == list(HEADS)
    assert all(record["machine"] and record["torch"] for record in records)
    assert path.with_suffix(".md").read_text() == LAYOUT.markdown(records)
    assert "improved_bcnn" in result.output
    table = runpy.run_path(str(UPDATE_DOCS))["TABLES"]["bench step"]
    table.func.__globals__["RESULTS"] = tmp_path
    assert table("all") == LAYOUT.markdown(records)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--backbone", "alexnett"], "unknown backbone 'alexnett'; did you mean 'alexnet'?"),
        (["--size", "8"], "with H, W >= 16"),
        (["--weights", "alexnet_imagenet"], "expected weights for 'tiny', got 'alexnet_imagenet'"),
    ],
)
def test_bad_options_are_named(options, message, tmp_path):
    result = CliRunner().invoke(app, ["bench", "step", "--quick", *options, "--out", str(tmp_path)])
    assert isinstance(result.exception, ValueError)
    assert message in str(result.exception)
    assert not any(tmp_path.iterdir())


def test_a_gradient_that_is_not_finite_is_an_error(tmp_path):
    training = measure._set_up(SMALL, tmp_path)
    with torch.no_grad():
        training.models[BARE].scorer.bias.fill_(float("nan"))
    with pytest.raises(ArithmeticError, match="expected finite gradients with bcnn, got a length of nan"):
        measure._step(training, BARE, training.batches(1))
