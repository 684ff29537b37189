"""From a folder of pictures to a run folder, and from that to predictions."""

import json
from dataclasses import replace

import pytest
import torch
import yaml

import bcnn
from bcnn.files import read_csv
from bcnn.metrics import Prediction
from bcnn.runs import predict as predicting
from bcnn.runs.config import RunConfig, from_plain, to_plain
from bcnn.runs.predictions import predictions_of, to_csv, to_record
from bcnn.runs.train import train
from tests.descriptors.images import draw, picture_folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("pictures"), classes=3, train=8, test=6)


def config_for(pictures, **options):
    return RunConfig(str(pictures), **{"backbone": "tiny", "weights": None, "size": 32, "preset": ("bcnn",), **options})


@pytest.fixture(scope="module")
def run(pictures, tmp_path_factory):
    torch.manual_seed(0)
    out = tmp_path_factory.mktemp("run") / "r"
    (trained,), _ = train(config_for(pictures), out)
    return trained


def test_a_run_folder_has_everything(run, pictures):
    names = {path.name for path in run.folder.iterdir() if path.name[0] != "."}
    assert names == {"config.yaml", "metrics.json", "predictions.csv", "model.safetensors", "confusion.png",
                     "mistakes.png", "dual.safetensors", "descriptors"}  # fmt: skip
    metrics = json.loads((run.folder / "metrics.json").read_text())
    assert metrics["accuracy"] > 0.6  # stripes of three widths; chance is a third
    low, high = metrics["interval95"]
    assert low < metrics["accuracy"] <= high
    assert (metrics["num_train"], metrics["num_test"], metrics["seed"]) == (24, 18, 0)
    assert set(metrics["per_class"]) == {"class_0", "class_1", "class_2"}
    assert metrics["versions"]["torch"] == torch.__version__
    assert metrics["time_s"]["describe"] > 0
    assert metrics["classifier"]["converged"]
    right = [row["truth"] == row["class1"] for row in read_csv(run.folder / "predictions.csv")]
    assert sum(right) / len(right) == pytest.approx(metrics["accuracy"])


def test_the_config_file_gives_the_same_run(run, pictures):
    content = yaml.safe_load((run.folder / "config.yaml").read_text())
    assert content["weights"] == "none"
    assert from_plain(content) == config_for(pictures)
    assert to_plain(from_plain(content)) == content
    with pytest.raises(ValueError, match="unknown option 'presett'; did you mean 'preset'"):
        from_plain({"spec": "x", "presett": "bcnn"})


def test_the_model_predicts_what_the_run_did_on_its_own(run, tmp_path):
    moved = tmp_path / "elsewhere.safetensors"
    moved.write_bytes((run.folder / "model.safetensors").read_bytes())
    rows = read_csv(run.folder / "predictions.csv")
    recognizer = predicting.open_run(moved)
    paths = predicting.find_images([run_pictures(run) / row["image"] for row in rows])
    found = list(predicting.predict(recognizer, paths))
    assert len(found) == len(rows)
    for prediction, row in zip(found, rows, strict=True):
        assert isinstance(prediction, Prediction)
        assert [name for name, _ in prediction.top] == [row[f"class{i + 1}"] for i in range(3)]
        assert [p for _, p in prediction.top] == pytest.approx([float(row[f"probability{i + 1}"]) for i in range(3)],
                                                               abs=1e-4)  # fmt: skip
        assert sum(p for _, p in prediction.top) == pytest.approx(1)


def run_pictures(run):
    from pathlib import Path

    return Path(yaml.safe_load((run.folder / "config.yaml").read_text())["spec"])


def test_the_scores_are_the_networks_own(run):
    model = bcnn.load(run.folder / "model.safetensors")
    notes = bcnn.read_notes(run.folder / "model.safetensors")
    sample = next((run_pictures(run) / "test").rglob("*.png"))
    from bcnn.data.preprocess import open_image

    image = model.config.preprocessing(open_image(sample))[None]
    with torch.inference_mode():
        scores = (model(image) + model(image.flip(-1))) / 2
    expected = (scores / notes["temperature"]).softmax(-1).max()
    (found,) = predicting.predict(predicting.open_run(run.folder), [sample])
    assert found.top[0][1] == pytest.approx(float(expected), abs=1e-5)


def test_evaluate_finds_the_same_accuracy_and_knows_its_classes(run, tmp_path, pictures):
    recognizer = predicting.open_run(run.folder)
    metrics = predicting.evaluate(recognizer, str(pictures), tmp_path / "e")
    assert metrics.test.accuracy == run.metrics.test.accuracy
    assert metrics.test.interval95 == run.metrics.test.interval95
    assert (tmp_path / "e" / "confusion.png").exists()
    some = picture_folder(tmp_path / "some", classes=2, train=1, test=2)
    with pytest.raises(ValueError, match="new or of the same images"):
        predicting.evaluate(recognizer, str(some), tmp_path / "e")
    part = predicting.evaluate(recognizer, str(some), tmp_path / "part")
    assert part.test.num_test == 4
    (some / "test" / "class_0").rename(some / "test" / "heron")
    (some / "train" / "class_0").rename(some / "train" / "heron")
    with pytest.raises(ValueError, match="1 others, such as 'heron'; it knows 'class_0' and 2 more"):
        predicting.evaluate(recognizer, str(some), tmp_path / "x")


def test_the_same_seed_gives_the_same_to_the_last_digit(run, pictures, tmp_path):
    (again,), _ = train(config_for(pictures), tmp_path / "r")
    for name in ("model.safetensors", "predictions.csv"):
        first, second = run.folder / name, again.folder / name
        if name.endswith("csv"):
            assert first.read_bytes() == second.read_bytes()
    one, two = (bcnn.load(r.folder / "model.safetensors").state_dict() for r in (run, again))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert one.keys() == two.keys()


def test_presets_are_compared(pictures, tmp_path):
    runs, _ = train(config_for(pictures, preset=("average", "bcnn", "improved_bcnn")), tmp_path / "r")
    assert [r.folder.name for r in runs] == ["average", "bcnn", "improved_bcnn"]
    records = read_csv(tmp_path / "r" / "comparison.csv")
    assert [record["preset"] for record in records] == ["average", "bcnn", "improved_bcnn"]
    assert [float(record["accuracy"]) for record in records] == [r.metrics.test.accuracy for r in runs]
    assert records[2]["against"] == "bcnn"
    assert float(records[2]["difference"]) == pytest.approx(
        runs[2].metrics.test.accuracy - runs[1].metrics.test.accuracy
    )
    assert 0 <= float(records[1]["p"]) <= 1
    text = (tmp_path / "r" / "comparison.md").read_text()
    assert f"{100 * runs[0].metrics.test.accuracy:.1f}" in text
    assert (tmp_path / "r" / "comparison.png").stat().st_size > 1000
    with pytest.raises(FileNotFoundError, match=r"name one of: .*improved_bcnn"):
        predicting.open_run(tmp_path / "r")


def test_a_run_of_another_configuration_is_refused_and_features_can_be_shared(run, pictures, tmp_path):
    before = (run.folder / "metrics.json").read_bytes()
    with pytest.raises(ValueError, match=r"got one with C 1\.0 instead of 2\.0; choose another --out"):
        train(config_for(pictures, C=2.0), run.folder)
    assert (run.folder / "metrics.json").read_bytes() == before
    shared = config_for(pictures, C=2.0, classifier="logistic", descriptors=str(run.folder / "descriptors"))
    _, done = train(shared, tmp_path / "r")
    assert done.num_done == 0
    assert not (tmp_path / "r" / "descriptors").exists()


def test_results_of_other_images_are_not_lost(pictures, tmp_path):
    train(config_for(pictures), tmp_path / "r")
    before = (tmp_path / "r" / "metrics.json").read_bytes()
    other = picture_folder(tmp_path / "other", classes=2, train=5, test=2)
    with pytest.raises(ValueError, match="got one with images others"):
        train(config_for(other, descriptors=str(tmp_path / "f")), tmp_path / "r")
    assert (tmp_path / "r" / "metrics.json").read_bytes() == before


def test_a_failed_start_does_not_block_the_folder(pictures, run, tmp_path):
    shared = str(run.folder / "descriptors")
    with pytest.raises(ValueError, match=r"size is 32 there, 48 now"):
        train(config_for(pictures, size=48, descriptors=shared), tmp_path / "r")
    (again,), _ = train(config_for(pictures, descriptors=shared), tmp_path / "r")
    assert again.metrics.test.accuracy == run.metrics.test.accuracy
    assert yaml.safe_load((tmp_path / "r" / "config.yaml").read_text())["size"] == 32


def test_a_class_that_cannot_be_learned(tmp_path):
    root = picture_folder(tmp_path / "p", classes=3, train=6, test=2)
    lines = [f"{p},{p.parent.name},{p.parts[-3]}" for p in sorted(root.rglob("*.png"))]
    table = tmp_path / "list.csv"
    table.write_text("\n".join(["path,label,split", *(line for line in lines if "train/class_2" not in line)]))
    with pytest.raises(ValueError, match="got 1 classes without, such as 'class_2'"):
        train(config_for(table), tmp_path / "r")
    for path in (root / "train" / "class_2").iterdir():
        path.write_bytes(b"")
    (trained,), _ = train(config_for(root), tmp_path / "s")
    assert trained.metrics.classifier.untrained == ("class_2",)
    assert trained.metrics.test.per_class["class_2"].accuracy == 0


@pytest.mark.parametrize("classifier", ["svm", "svm_squared", "logistic"])
def test_every_classifier_learns(classifier, run, pictures, tmp_path):
    shared = config_for(pictures, classifier=classifier, descriptors=str(run.folder / "descriptors"))
    (trained,), _ = train(shared, tmp_path / "r")
    assert trained.metrics.test.accuracy > 0.6
    assert trained.metrics.classifier.kind == classifier


def test_broken_images_and_no_test_images(tmp_path):
    root = picture_folder(tmp_path / "p", classes=2, train=5, test=0)
    (root / "train" / "class_0" / "0.png").write_bytes(b"no picture")
    (root / "test").mkdir(exist_ok=True)
    table = tmp_path / "list.csv"
    lines = [f"{path},{path.parent.name},train" for path in sorted((root / "train").rglob("*.png"))]
    table.write_text("\n".join(["path,label,split", *lines]))
    (trained,), done = train(config_for(table), tmp_path / "r")
    assert len(done.broken) == 1
    assert trained.metrics.test is None
    assert trained.metrics.num_train == 9
    assert list(trained.metrics.broken) == list(done.broken)
    assert (tmp_path / "r" / "model.safetensors").exists()


def test_aircraft_crops_are_kept_in_the_model(pictures, tmp_path, monkeypatch):
    from bcnn.runs import train as module

    load = module.load_dataset
    monkeypatch.setattr(module, "load_dataset", lambda spec: replace(load(spec), resize_ratio=512 / 448))
    train(config_for(pictures), tmp_path / "r")
    preprocessing = bcnn.load(tmp_path / "r" / "model.safetensors").config.preprocessing
    assert (preprocessing.size, preprocessing.resize_to) == (32, round(32 * 512 / 448))


def test_predictions_say_what_is_wrong_with_a_file(run, tmp_path):
    good = draw(tmp_path / "good.png", 1)
    (tmp_path / "bad.png").write_bytes(b"")
    paths = [tmp_path / "bad.png", good, tmp_path / "no.png"]
    results = list(predicting.predict(predicting.open_run(run.folder), paths))
    assert [type(result) for result in results] == [OSError, Prediction, FileNotFoundError]
    assert predicting.find_images([tmp_path]) == [tmp_path / "bad.png", good]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"expected images in .*empty, got none"):
        predicting.find_images([tmp_path / "empty"])


def test_a_model_without_class_names_is_refused(tmp_path):
    bcnn.save(bcnn.build_model("bcnn", backbone="tiny", weights=None, num_classes=2), tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="a network with class names"):
        predicting.open_run(tmp_path / "m.safetensors")
    with pytest.raises(FileNotFoundError, match="make one with bcnn train"):
        predicting.open_run(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": ("bcn",)}, "did you mean 'bcnn'"),
        ({"preset": ("bcnn", "bcnn")}, "each preset once"),
        ({"preset": ()}, "at least one preset"),
        ({"preset": ("average", "bcnn"), "eps": 0.1}, "a preset with a ridge for eps"),
        ({"preset": ("average",), "eps": 0.1}, "a preset with a ridge for eps"),
        ({"eps": 1e300}, "eps >= 0 and <= 1e"),
        ({"eps": "much"}, "eps to be a number, got 'much'; the default is the preset's"),
        ({"seed": -1}, "seed >= 0"),
        ({"classifier": "tree"}, "unknown classifier"),
        ({"C": 0.0}, "C > 0"),
    ],
)
def test_bad_configurations(options, message):
    with pytest.raises(ValueError, match=message):
        RunConfig("x", **options)


def test_eps_goes_where_there_is_a_ridge(pictures, tmp_path):
    from bcnn.data.spec import load_dataset
    from bcnn.runs.networks import networks

    models = networks(config_for(pictures, preset=("average", "bcnn", "o2p"), eps=0.5), load_dataset(str(pictures)))
    poolings = [model.config.head.pooling for model in models.values()]
    assert poolings == ["average", "bilinear(eps=0.0)", "bilinear(eps=0.5)"]
    alone = networks(config_for(pictures, preset=("bcnn",), eps=0.5), load_dataset(str(pictures)))
    assert alone["bcnn"].config.head.pooling == "bilinear(eps=0.5)"


def test_records_of_predictions():
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 0.0, 0.0]])
    found = predictions_of(logits, ["a.jpg", "odd\udcff.jpg"], ["x", "y", "z"], torch.tensor([1, 2]))
    assert [p.is_right for p in found] == [True, False]
    assert found[0].top[0] == ("y", pytest.approx(float(logits[0].softmax(0)[1])))
    assert to_record(found[1])["image"] == "odd\\udcff.jpg"
    lines = to_csv(found, top=2).splitlines()
    named = predictions_of(logits[:1], ["new\nline.jpg"], ["x", "y", "z"])
    assert to_record(named[0])["image"] == "new\nline.jpg"  # as it is, for other programs
    assert lines[0] == "image,truth,class1,probability1,class2,probability2"
    assert lines[1].startswith("a.jpg,y,y,0.66")
    assert predictions_of(logits[:0], [], ["x", "y", "z"]) == []


def test_svms_are_brought_to_one_scale_and_logistic_regression_is_one_already():
    assert RunConfig(spec="textures").rescale == "median"
    assert RunConfig(spec="textures", classifier="svm_squared").rescale == "median"
    assert RunConfig(spec="textures", classifier="logistic").rescale == "none"
    assert RunConfig(spec="textures", rescale="none").rescale == "none"
    with pytest.raises(ValueError, match="rescale 'mean'"):
        RunConfig(spec="textures", rescale="mean")
