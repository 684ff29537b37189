"""The straight-through reading of "Faster"."""

import torch

import bcnn

from ...helpers import gradient, random_like, spd


def test_passes_the_symmetric_part_through():
    A = spd(2)
    G = random_like(A)
    for forward in ("eigen", "newton_schulz"):
        X = gradient(lambda A, forward=forward: bcnn.sqrtm(A, forward=forward, backward="identity"), A, G)
        assert torch.allclose(X, (G + G.mT) / 2, rtol=0, atol=1e-15)
