"""Memory that tensors take."""

import torch

from bcnn.bench.memory import peak_bytes

SIZE = 4 * 10_000  # of a tensor, in bytes


def test_tensors_that_are_gone_make_room():
    x = torch.ones(10_000)

    def work():
        for _ in range(5):
            x + 1
        return [x + 1 for _ in range(3)]

    assert peak_bytes(work) == 3 * SIZE


def test_views_and_work_in_place_take_nothing():
    x = torch.ones(10_000)
    assert peak_bytes(lambda: x.view(100, 100).mT.add_(1)) == 0
    assert peak_bytes(lambda: (x + 1).view(100, 100).mul_(2)[3:]) == SIZE


def test_what_autograd_keeps_counts():
    x = torch.ones(10_000, requires_grad=True)
    with torch.no_grad():
        without = peak_bytes(lambda: x.exp().exp().exp().exp())
    assert without == 2 * SIZE
    assert peak_bytes(lambda: x.exp().exp().exp().exp()) == 4 * SIZE


def test_inference_mode_is_seen_too():
    x = torch.ones(10_000)
    with torch.inference_mode():
        assert peak_bytes(lambda: x * 2) == SIZE
