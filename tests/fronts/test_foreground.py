"""The front that finds objects, on pictures of discs."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import bcnn
from bcnn.data.spec import load_dataset
from bcnn.files import read_csv
from bcnn.fronts import FRONTS
from bcnn.fronts.boxes import cut_out, widened
from bcnn.fronts.foreground import Foreground
from tests.command import run_command
from tests.seams.walk import SHORT, SMALL

COLOURS = ((220, 60, 60), (60, 60, 220), (230, 200, 40))


def scene(seed, label=0, side=64):
    """A coloured disc somewhere on green ground; and its box in pixels."""
    random = np.random.default_rng(seed)
    radius = random.integers(side // 8, side // 4)
    x, y = random.integers(radius, side - radius, 2)
    rows, columns = np.mgrid[:side, :side]
    there = (rows - y) ** 2 + (columns - x) ** 2 <= radius**2
    pixels = np.where(there[..., None], COLOURS[label], (60, 130, 70)) + random.normal(0, 12, (side, side, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), (x - radius, y - radius, x + radius, y + radius)


def scenes(seeds):
    """Images and boxes as a front is given them."""
    images, boxes = zip(*(scene(seed, seed % 3) for seed in seeds), strict=True)
    values = np.stack([np.asarray(image) for image in images])
    return torch.from_numpy(values).movedim(-1, 1).float() / 255, torch.tensor(boxes).float() / 64


def overlap(a, b):
    """Intersection over union of boxes."""
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    both = (high - low).clamp_min(0).prod(-1)
    return both / (sum((x[:, 2:] - x[:, :2]).prod(-1) for x in (a, b)) - both)


@pytest.fixture(scope="module")
def front():
    part = Foreground(margin=0, num_epochs=25, lr=0.01)
    batches = [scenes(range(start, start + 8)) for start in (0, 8, 16, 24)]
    part.fit(lambda: batches)
    return part.eval()


def test_objects_are_found_without_boxes(front):
    images, boxes = scenes(range(100, 130))
    found = overlap(front.boxes(images), boxes).mean()
    whole = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(30, 4)
    middle = scenes(range(32))[1].mean(0).expand(30, 4)
    assert found > 0.6 > max(overlap(whole, boxes).mean(), overlap(middle, boxes).mean())


def test_in_what_a_box_cuts_out_nearly_everything_is_found(front):
    images, boxes = scenes(range(100, 130))
    crops = cut_out(images, widened(boxes, 0.1))
    found = front.boxes(crops)
    assert (found[:, 2:] - found[:, :2]).prod(-1).mean() > 0.6


def test_pixels_of_any_scale_have_the_same_boxes(front):
    images, _ = scenes(range(100, 104))
    torch.testing.assert_close(front.boxes(255 * images - 120), front.boxes(images), rtol=0, atol=1e-4)


def test_crops_are_what_is_in_the_boxes(front):
    images, _ = scenes(range(100, 104))
    assert torch.equal(front(images)[:, 0], cut_out(images, front.boxes(images)))
    both = Foreground(margin=0, whole=True).eval()
    both.load_state_dict(front.state_dict())
    assert both.num_crops == 2
    assert torch.equal(both(images), torch.stack([images, front(images)[:, 0]], 1))
    both.size = 20
    whole, crops = both(images).unbind(1)
    assert torch.equal(crops, cut_out(images, front.boxes(images), (20, 20)))
    expected = torch.nn.functional.interpolate(images, size=(20, 20), mode="bilinear", antialias=True)
    torch.testing.assert_close(whole, expected)


def test_precisions_and_compilation(front):
    images, _ = scenes(range(100, 104))
    expected = front.boxes(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(front.boxes(images), expected)
    torch.testing.assert_close(front.boxes(images.bfloat16()), expected, rtol=0, atol=0.05)
    assert front(images.bfloat16()).dtype == torch.bfloat16
    torch._dynamo.reset()
    compiled = torch.compile(front, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), front(images))


def test_it_learns_from_what_comes_after_it(front):
    images, _ = scenes(range(100, 104))
    front(images).square().sum().backward()
    gradients = [p.grad for p in front.parameters()]
    assert all(g.isfinite().all() for g in gradients)
    assert any((g != 0).any() for g in gradients)
    front.zero_grad()


def test_fitting_is_repeatable_and_leaves_random_numbers_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again = Foreground(num_epochs=1), Foreground(num_epochs=1)
    for part in (first, again):
        part.fit(lambda: [scenes(range(4))])
    assert torch.equal(torch.get_rng_state(), before)
    assert all(map(torch.equal, first.state_dict().values(), again.state_dict().values()))


def test_errors():
    with pytest.raises(ValueError, match="Foreground: expected to be fitted on training images first"):
        Foreground()(torch.rand(1, 3, 64, 64))
    with pytest.raises(ValueError, match="expected training images with boxes, got none; the datasets cub and cars"):
        Foreground().fit(list)
    with pytest.raises(ValueError, match="expected `margin` from 0 to 10"):
        FRONTS.make("foreground(margin=-1)")


# --- from training to prediction --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    """Discs of three colours, in the layout of CUB."""
    root = tmp_path_factory.mktemp("birds")
    lines = {name: [] for name in ("images", "image_class_labels", "train_test_split", "classes", "bounding_boxes")}
    number = 0
    for label in range(3):
        lines["classes"].append(f"{label + 1} kind{label}")
        for i in range(9):
            number += 1
            image, (left, top, right, bottom) = scene(number, label)
            name = f"kind{label}/{i}.png"
            (root / "images" / name).parent.mkdir(parents=True, exist_ok=True)
            image.save(root / "images" / name)
            lines["images"].append(f"{number} {name}")
            lines["image_class_labels"].append(f"{number} {label + 1}")
            lines["train_test_split"].append(f"{number} {int(i < 6)}")
            lines["bounding_boxes"].append(f"{number} {left}.0 {top}.0 {right - left}.0 {bottom - top}.0")
    for name, content in lines.items():
        (root / f"{name}.txt").write_text("\n".join(content) + "\n")
    return root


def train(spec, out, *options):
    done = run_command("train", spec, *SMALL, "--backbone", "tiny", *options, "--out", out)
    assert done.returncode == 0, done.stderr
    return json.loads((out / "metrics.json").read_text())


@pytest.mark.parametrize("more", [(), SHORT], ids=["frozen", "fine-tuned"])
@pytest.mark.parametrize("whole", [False, True])
def test_trained_with_boxes_tested_without(birds, tmp_path, whole, more):
    run, front = tmp_path / "run", f"foreground(whole={whole}, num_epochs=2)"
    for _ in range(2):  # the second time, what was fitted is read
        metrics = train(f"cub:{birds},box=train", run, "--front", front, *more)
    assert metrics["descriptor_length"] == 528 * (1 + whole)
    model = bcnn.load(run / "model.safetensors")
    assert bool(model.front.fitted)
    tests = [sample for sample in load_dataset(f"cub:{birds}").samples if sample.split == "test"]
    done = run_command("predict", run, *(sample.source for sample in tests), "--format", "json")
    assert done.returncode == 0, done.stderr
    said = [record["top"][0]["class"] for record in json.loads(done.stdout)]
    assert said == [row["class1"] for row in read_csv(run / "predictions.csv")]
    done = run_command("evaluate", run, f"cub:{birds}", "--out", tmp_path / "evaluated")  # test images are whole
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "evaluated" / "metrics.json").read_text())["accuracy"] == metrics["accuracy"]


def test_the_upper_bound_needs_no_front(birds, tmp_path):
    metrics = train(f"cub:{birds},box=both", tmp_path / "run")
    assert metrics["accuracy"] > 0.8
    assert metrics["dataset"] == "cub,box=both"


def test_it_is_fitted_on_whole_images_with_their_boxes(birds):
    dataset = load_dataset(f"cub:{birds},box=train")
    model = bcnn.build_model("bcnn", backbone="tiny", weights=None, size=32, front="foreground(num_epochs=1)")
    seen = []
    model.front.fit = lambda batches: seen.extend(batches())
    boxed = dataset.of("train")[:5]
    bcnn.fit_parts(model, [*boxed, replace(boxed[0], box=None)])
    images, boxes = (torch.cat(parts) for parts in zip(*seen, strict=True))
    assert (images.shape, boxes.shape) == ((5, 3, 32, 32), (5, 4))  # those without a box are left out
    for sample, own in zip(boxed, images, strict=True):
        whole = Image.open(sample.source)
        torch.testing.assert_close(own, model.preprocessing(whole))
        assert sample.open().size != whole.size
    torch.testing.assert_close(64 * boxes, torch.tensor([s.box for s in boxed]))


def test_a_dataset_without_boxes_is_told(pictures_without_boxes, tmp_path):
    done = run_command(
        "train", pictures_without_boxes, *SMALL, "--backbone", "tiny", "--front", "foreground", "--out", tmp_path / "r"
    )
    assert done.returncode == 2
    assert "expected training images with boxes, got none" in done.stderr


@pytest.fixture
def pictures_without_boxes(tmp_path):
    from tests.descriptors.images import picture_folder

    return picture_folder(tmp_path / "p", train=2, test=1)
