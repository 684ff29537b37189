"""Boxes: found in maps, widened, cut out; foregrounds within them."""

import numpy as np
import pytest
import torch

from bcnn.fronts.boxes import box_of_map, cut_out, inside, segment_in_boxes, widened


def disc(centre=(0.4, 0.55), radius=(0.2, 0.3), side=64):
    """1 in an ellipse, x before y; and its box."""
    places = (torch.arange(side, dtype=torch.float64) + 0.5) / side
    x, y = (places - centre[0]) / radius[0], (places - centre[1]) / radius[1]
    box = [centre[0] - radius[0], centre[1] - radius[1], centre[0] + radius[0], centre[1] + radius[1]]
    return (x[None, :].square() + y[:, None].square() <= 1).double()[None], torch.tensor([box]).double()


def test_the_box_of_an_ellipse_is_its_bounding_box():
    p, box = disc()
    torch.testing.assert_close(box_of_map(p), box, rtol=0, atol=0.01)
    torch.testing.assert_close(box_of_map(1e-3 * p), box, rtol=0, atol=0.01)


def test_the_box_is_mean_and_deviation():
    p = torch.rand(3, 5, 7, generator=torch.Generator().manual_seed(0)).double()
    places = np.stack(np.meshgrid((np.arange(7) + 0.5) / 7, (np.arange(5) + 0.5) / 5), -1).reshape(-1, 2)
    for own, box in zip(p.numpy(), box_of_map(p).numpy(), strict=True):
        mean = np.average(places, axis=0, weights=own.ravel())
        variance = np.average((places - mean) ** 2, axis=0, weights=own.ravel())
        variance += np.array([7.0, 5.0]) ** -2 / 12  # of a pixel
        expected = np.concatenate([mean - 2 * variance**0.5, mean + 2 * variance**0.5]).clip(0, 1)
        np.testing.assert_allclose(box, expected, atol=1e-5)


def test_where_there_is_nothing_the_box_is_the_image():
    assert box_of_map(torch.zeros(2, 8, 8)).tolist() == [[0, 0, 1, 1]] * 2


def test_margins_end_at_the_border():
    boxes = torch.tensor([[0.4, 0.4, 0.6, 0.8], [0.0, 0.1, 1.0, 0.9]])
    expected = torch.tensor([[0.3, 0.2, 0.7, 1.0], [0.0, 0.0, 1.0, 1.0]])
    torch.testing.assert_close(widened(boxes, 0.5), expected)


def test_cutting_out():
    images = torch.rand(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))
    whole = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(2, 4)
    torch.testing.assert_close(cut_out(images, whole), images, rtol=0, atol=1e-5)
    boxes = torch.tensor([[12 / 48, 8 / 32, 36 / 48, 24 / 32], [0.0, 16 / 32, 24 / 48, 1.0]])
    crops = cut_out(images, boxes, (16, 24))
    torch.testing.assert_close(crops[0], images[0, :, 8:24, 12:36], rtol=0, atol=1e-5)
    torch.testing.assert_close(crops[1], images[1, :, 16:, :24], rtol=0, atol=1e-5)
    assert cut_out(images, boxes).shape == images.shape


def test_gradient():
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(1, 6, 6, generator=generator).double().pow(4).requires_grad_()
    images = torch.rand(1, 2, 7, 9, generator=generator).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda p: widened(box_of_map(p), 0.1), (p,))
    assert torch.autograd.gradcheck(lambda images: cut_out(images, box_of_map(p.detach())), (images,))


def test_inside():
    marks = inside(torch.tensor([[0.25, 0.0, 0.75, 0.5]]), (2, 4))
    assert marks.tolist() == [[[0, 1, 1, 0], [0, 0, 0, 0]]]


@pytest.mark.parametrize("scale", [1.0, 255.0])
def test_the_foreground_of_another_colour_is_found(scale):
    p, box = disc()
    noise = 0.05 * torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)).double()
    ground, thing = (torch.tensor(colour).double()[:, None, None] for colour in ((0.2, 0.5, 0.3), (0.8, 0.4, 0.1)))
    images = scale * (torch.where(p[:, None] > 0, thing, ground) + noise)
    found = segment_in_boxes(images, box)
    assert (found * p).sum() / (found + p - found * p).sum() > 0.85
    assert (found * (1 - inside(box, (64, 64)))).sum() == 0


def test_without_colours_the_foreground_is_the_box():
    boxes = torch.tensor([[0.3, 0.2, 0.7, 0.9]])
    assert torch.equal(segment_in_boxes(torch.zeros(1, 3, 64, 64), boxes) > 0, inside(boxes, (64, 64)) > 0)
