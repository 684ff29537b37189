"""The plan depends on seed and epoch alone; shares make up the batch; schedules."""

import math
from collections import Counter

import pytest
import torch

from bcnn.data.contract import TRAIN, Sample
from bcnn.finetune.config import FinetuneConfig
from bcnn.finetune.plan import Plan, hold_out, learning_rate, share_of


def samples(counts):
    return [Sample(f"{label}/{i}", label, TRAIN, lambda: None) for label, n in enumerate(counts) for i in range(n)]


def test_every_image_once_an_epoch():
    plan = Plan(23, 5, True, seed=1)
    batches = plan.epoch(4)
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
    assert len(batches) == plan.num_batches
    assert sorted(number for batch in batches for number, _ in batch) == list(range(23))


def test_epochs_and_seeds_differ_and_repeat():
    plan = Plan(40, 8, True, seed=1)
    assert plan.epoch(2) == Plan(40, 8, True, seed=1).epoch(2)
    assert plan.epoch(2) != plan.epoch(3)
    assert plan.epoch(2) != Plan(40, 8, True, seed=2).epoch(2)


def test_about_half_are_mirrored_unless_flips_are_off():
    mirrored = sum(flip for batch in Plan(2000, 50, True, seed=0).epoch(1) for _, flip in batch)
    assert 900 < mirrored < 1100
    assert not any(flip for batch in Plan(2000, 50, False, seed=0).epoch(1) for _, flip in batch)


def test_torch_draws_the_same_numbers_at_the_same_step():
    plan = Plan(10, 2, True, seed=3)
    drawn = []
    for epoch, batch, rank in ((1, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 1), (2, 0, 0)):
        plan.seed_step(epoch, batch, rank)
        drawn.append(tuple(torch.rand(3).tolist()))
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 4


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_shares_make_up_the_batch(size):
    batch = [(i, False) for i in range(5)]
    shares = [share_of(batch, rank, size) for rank in range(size)]
    counted = [item for items, count in shares for item in items[:count]]
    assert sorted(counted) == batch
    assert all(items for items, _ in shares)  # everybody takes part in the step


def test_validation_is_cut_from_every_class():
    kept, held_out = hold_out(samples([10, 20, 1, 2]), 0.2, seed=0)
    assert Counter(s.label for s in held_out) == {0: 2, 1: 4, 3: 1}
    assert not {s.name for s in kept} & {s.name for s in held_out}
    assert len(kept) + len(held_out) == 33
    assert all(s.split == TRAIN for s in kept + held_out)
    assert hold_out(samples([10, 20, 1, 2]), 0.2, seed=0) != hold_out(samples([10, 20, 1, 2]), 0.2, seed=1)
    assert hold_out(samples([4]), 0.0, seed=0)[1] == []


def test_schedules():
    constant = FinetuneConfig(lr=0.1)
    assert {learning_rate(constant, at) for at in (0, 7.3, 49.9)} == {0.1}
    cosine = FinetuneConfig(lr=0.1, epochs=10, schedule="cosine", warmup_epochs=2)
    assert learning_rate(cosine, 0) == 0
    assert learning_rate(cosine, 1) == pytest.approx(0.05)
    assert learning_rate(cosine, 2) == pytest.approx(0.1)
    assert learning_rate(cosine, 6) == pytest.approx(0.05)
    assert learning_rate(cosine, 10) == pytest.approx(0.0)
    assert learning_rate(cosine, 4) == pytest.approx(0.05 * (1 + math.cos(math.pi / 4)))
    step = FinetuneConfig(lr=0.1, schedule="step", step_epochs=3, step_factor=0.5)
    assert [learning_rate(step, at) for at in (0, 2.9, 3, 6.5)] == pytest.approx([0.1, 0.1, 0.05, 0.025])
