"""Colours lie where the shares are, and only on what the network saw."""

import numpy as np
from PIL import Image

from bcnn.data.preprocess import Preprocessing
from bcnn.report.overlay import overlay, side_by_side


def warmth(picture):
    pixels = np.asarray(picture).astype(int)
    return pixels[..., 0] - pixels[..., 2]


def test_warm_where_it_speaks_for_the_class_and_cold_where_against():
    shares = np.zeros((4, 4))
    shares[0, 0], shares[3, 3] = 1, -1
    seen = warmth(overlay(Image.new("RGB", (80, 40), "grey"), shares, Preprocessing(size=32)))
    assert seen[:8, :16].min() > 60
    assert seen[-8:, -16:].max() < -60
    assert abs(seen[16:24, 32:48]).max() < 40


def test_what_was_cut_off_is_dark_and_without_colour():
    photograph = Image.new("RGB", (200, 100), (200, 200, 200))
    made = np.asarray(overlay(photograph, np.ones((3, 3)), Preprocessing(size=64, resize="shorter"))).astype(int)
    assert (abs(made[:, :50] - 80) <= 1).all()
    assert (abs(made[:, 150:] - 80) <= 1).all()
    assert (made[:, 50:150, 0] - made[:, 50:150, 2] > 60).all()


def test_no_shares_at_all_leave_the_photograph_grey():
    made = overlay(Image.new("RGB", (20, 20), (250, 120, 10)), np.zeros((2, 2)), Preprocessing(size=32))
    assert (warmth(made) == 0).all()
    both = side_by_side(Image.new("RGB", (20, 10), "red"), np.zeros((2, 2)), Preprocessing(size=32))
    assert both.size == (40, 10)
    assert both.getpixel((0, 0)) == (255, 0, 0)
