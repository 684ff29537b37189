"""Fisher vectors, VLAD, NetVLAD, democratic aggregation and picked parts, from training to prediction."""

import pytest

import bcnn

from .walk import SHORT, predict, train

NORMALIZE = ("--normalize", "matrix_sqrt", "--normalize", "signed_sqrt", "--normalize", "l2")
LENGTHS = {
    "fisher(num_words=4)": 2 * 4 * 32,
    "vlad(num_words=4)": 4 * 32,
    "netvlad(num_words=4)": 4 * 32,
    "pd_swfv(num_words=4, num_parts=3)": 2 * 4 * 32,
    "pd_swfv(num_words=4, num_parts=3, parts=True)": (2 * 4 + 3) * 32,
    "democratic": 528,
}


@pytest.mark.parametrize("more", [(), SHORT], ids=["frozen", "fine-tuned"])
@pytest.mark.parametrize("pooling", LENGTHS)
def test_trained_saved_loaded_predicted(pictures, tmp_path, pooling, more):
    metrics = train(pictures, tmp_path / "run", "--pooling", pooling, *more)
    assert metrics["descriptor_length"] == LENGTHS[pooling]
    assert metrics["accuracy"] > 0.5  # three kinds of stripes
    part = bcnn.load(tmp_path / "run" / "model.safetensors").head.pooling
    assert part.written == pooling
    predict(pictures, tmp_path / "run")


def test_democratic_with_a_matrix_function(pictures, tmp_path):
    train(pictures, tmp_path / "run", "--pooling", "democratic", *NORMALIZE)
    predict(pictures, tmp_path / "run")
