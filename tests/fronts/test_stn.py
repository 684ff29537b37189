"""Spatial transformers: pixels against a loop, crops against slices, gradients, and through all commands."""

import math

import pytest
import torch
from torch.nn import functional

import bcnn
from bcnn.fronts import FRONTS
from bcnn.fronts.stn import attention, transform
from tests.seams.walk import SHORT, predict, train


def images(count=2, height=8, width=10, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, height, width, generator=generator, dtype=torch.float64).to(dtype)


def front(text="stn", dtype=torch.float64):
    torch.manual_seed(0)
    return FRONTS.make(text).to(dtype)


def sampled(image, theta, size):
    """The formula in loops: one image (C, H, W), one matrix (2, 3)."""
    (channels, height, width), result = image.shape, torch.zeros(image.shape[0], *size, dtype=image.dtype)

    def pixel(row, column):
        inside = 0 <= row < height and 0 <= column < width
        return image[:, row, column] if inside else torch.zeros(channels, dtype=image.dtype)

    for i in range(size[0]):
        for j in range(size[1]):
            point = torch.tensor([(2 * j + 1) / size[1] - 1, (2 * i + 1) / size[0] - 1, 1.0], dtype=image.dtype)
            x, y = (theta @ point).tolist()
            row, column = ((y + 1) * height - 1) / 2, ((x + 1) * width - 1) / 2  # pixels have their middle at 0, 1, ...
            top, left = math.floor(row), math.floor(column)
            a, b = row - top, column - left
            result[:, i, j] = (
                (1 - a) * (1 - b) * pixel(top, left) + (1 - a) * b * pixel(top, left + 1)
                + a * (1 - b) * pixel(top + 1, left) + a * b * pixel(top + 1, left + 1)
            )  # fmt: skip
    return result


def test_crops_are_bilinear_samples():
    given = images()
    scale = torch.tensor([[0.4, 1.3], [0.7, 0.2]], dtype=torch.float64)
    shift = torch.tensor([[[0.1, -0.3], [0.5, 0.2]], [[0.0, 0.9], [-0.6, 0.0]]], dtype=torch.float64)
    theta = attention(scale, shift)
    assert torch.equal(theta[0, 1], torch.tensor([[1.3, 0, 0.5], [0, 1.3, 0.2]], dtype=torch.float64))
    crops = transform(given, theta, (5, 7))
    assert crops.shape == (2, 2, 3, 5, 7)
    grid = functional.affine_grid(theta[:, 1], [2, 3, 5, 7], align_corners=False)
    torch.testing.assert_close(crops[:, 1], functional.grid_sample(given, grid, align_corners=False))
    for i in range(2):
        for c in range(2):
            torch.testing.assert_close(crops[i, c], sampled(given[i], theta[i, c], (5, 7)), rtol=1e-10, atol=1e-12)


def test_the_identity_gives_the_image_back():
    given = images()
    torch.testing.assert_close(front()(given), given[:, None])
    three = front("stn(transformers=3)")(given)
    torch.testing.assert_close(three, given[:, None].expand(-1, 3, -1, -1, -1))


def test_tiles_are_slices_of_the_image():
    given = images(height=8, width=12)
    crops = front("stn(transformers=4, scale=0.5, start=tiling, size=4)")(images(height=8, width=8))
    quarters = [images(height=8, width=8)[..., i : i + 4, j : j + 4] for i in (0, 4) for j in (0, 4)]
    torch.testing.assert_close(crops, torch.stack(quarters, 1))
    crops = front("stn(transformers=2, scale=1, start=tiling)")(given)
    torch.testing.assert_close(crops[:, 1], given)
    places = front("stn(transformers=3, scale=0.5, start=tiling)").theta(given)[0, :, :, 2]
    torch.testing.assert_close(places, torch.tensor([[-0.5, -0.5], [0.5, -0.5], [0.0, 0.5]]).double())


def test_gradients():
    given = images(1, 6, 6).requires_grad_()
    theta = attention(torch.tensor([[0.53]]).double(), torch.tensor([[[0.11, -0.07]]]).double()).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, t: transform(x, t, (4, 5)), (given, theta))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions(dtype):
    given = images(dtype=dtype)
    crops = front("stn(transformers=2, scale=0.5, start=tiling)", dtype)(given)
    assert crops.dtype == dtype
    expected = front("stn(transformers=2, scale=0.5, start=tiling)")(given.double())
    torch.testing.assert_close(crops.double(), expected, rtol=0, atol=4 * torch.finfo(dtype).eps)


def test_it_learns_to_look_where_something_is():
    """Rewarded for brightness, the crop goes from the middle to the bright spot."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 48), torch.linspace(-1, 1, 48), indexing="ij")
    spot = torch.exp(-((x - 0.4).square() + (y + 0.3).square()) / 0.2).expand(1, 3, -1, -1)
    own = front("stn(scale=0.4, learn_scale=False, size=16)", torch.float32)
    before = float(own(spot).mean().detach())
    optimizer = torch.optim.SGD(own.place.parameters(), lr=0.2)
    for _ in range(60):
        optimizer.zero_grad()
        (-own(spot).mean()).backward()
        optimizer.step()
    theta = own.theta(spot)[0, 0].detach()
    assert float(own(spot).mean().detach()) > 1.2 * before
    torch.testing.assert_close(theta, torch.tensor([[0.4, 0.0, 0.4], [0.0, 0.4, -0.3]]), rtol=0, atol=0.05)


def test_refusals():
    with pytest.raises(ValueError, match="stn: expected `transformers` to be a whole number >= 1, got 0"):
        front("stn(transformers=0)")
    with pytest.raises(ValueError, match=r"stn: expected `scale` above 0 and at most 1, .*got 2\.0"):
        front("stn(scale=2)")
    with pytest.raises(ValueError, match="stn: unknown start 'tile'; did you mean 'tiling'"):
        front("stn(start=tile)")


def test_in_a_network():
    torch.manual_seed(0)
    plain = bcnn.build_model("bcnn", backbone="tiny", weights=None, num_classes=3)
    torch.manual_seed(0)
    model = bcnn.build_model("bcnn", backbone="tiny", weights=None, num_classes=3, front="stn(transformers=2)")
    given = images(height=32, width=32, dtype=torch.float32)
    model.branches.load_state_dict(plain.branches.state_dict())
    torch.testing.assert_close(model.describe(given), plain.describe(given).repeat(1, 2), rtol=1e-3, atol=1e-4)
    model(given).square().sum().backward()
    assert model.front.place.bias.grad.abs().min() > 0


@pytest.mark.parametrize("more", [(), (*SHORT, "--lr-scale", "front=0.1")], ids=["frozen", "fine-tuned"])
def test_trained_saved_loaded_predicted(pictures, tmp_path, more):
    text = "stn(transformers=2, scale=0.5, start=tiling, size=16, see=16)"
    metrics = train(pictures, tmp_path / "run", "--front", text, *more)
    assert metrics["descriptor_length"] == 2 * 528
    start = FRONTS.make(text).place.bias
    places = bcnn.load(tmp_path / "run" / "model.safetensors").front.place.bias
    assert torch.equal(places, start) == (not more)  # it learns
    predict(pictures, tmp_path / "run")
