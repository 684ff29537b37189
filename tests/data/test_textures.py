"""The built-in textures: made the same way every time, nothing shared by the splits."""

import pickle
import sys

import numpy as np
import pytest

from bcnn.data import textures
from bcnn.data.spec import load_dataset


def pixels(sample):
    return np.asarray(sample.open())


def test_counts_and_classes():
    dataset = load_dataset("textures,per_class=3,seed=1")
    assert dataset.name == "textures,per_class=3,seed=1"
    assert len(dataset.classes) == 14
    for split in ("train", "test"):
        assert np.bincount([sample.label for sample in dataset.of(split)]).tolist() == [3] * 14
    assert len(load_dataset("textures").samples) == 14 * 2 * 40


def test_patches_are_the_same_again_after_pickling_and_in_any_order():
    first, again = load_dataset("textures,per_class=2"), load_dataset("textures,per_class=2")
    assert first == again
    images = [pixels(sample) for sample in first.samples]
    for i in reversed(range(len(images))):
        np.testing.assert_array_equal(pixels(pickle.loads(pickle.dumps(again.samples[i]))), images[i])
    assert len({image.tobytes() for image in images}) == len(images)
    assert {image.shape for image in images} == {(128, 128, 3)}


def test_more_patches_leave_the_first_alone_and_a_seed_changes_all():
    few, many, other = (
        load_dataset(f"textures,{o}").samples for o in ("per_class=1", "per_class=2", "per_class=1,seed=5")
    )
    by_name = {sample.name: sample for sample in many}
    assert all(by_name[sample.name] == sample for sample in few)
    assert all((pixels(a) != pixels(b)).mean() > 0.5 for a, b in zip(few[::5], other[::5], strict=True))


@pytest.mark.parametrize("name", [*textures.PHOTOGRAPHS, *textures.CLUTTER])
def test_the_halves_do_not_overlap_and_patches_stay_in_theirs(name, monkeypatch):
    left, right = textures.half_of(name, "train"), textures.half_of(name, "test")
    assert left[2] <= right[0]
    image = textures._photograph(name).copy()
    image.paste(0, left)
    image.paste(200, right)
    monkeypatch.setattr(textures, "_photograph", lambda _: image)
    sides = textures.SIDE if name in textures.PHOTOGRAPHS else textures.CLUTTER_SIDE
    seen = []
    monkeypatch.setattr(np, "asarray", lambda image: seen.append(np.array(image)) or seen[-1])
    for split, value in (("train", 0), ("test", 200)):
        for i in range(20):
            textures.cut_out(name, split, np.random.default_rng(i), sides)
            assert (seen[-1] == value).all()  # no pixel of the other half, none from outside, which would be 0
    assert len(seen) == 40


def test_brightness_tells_little_of_the_class():
    dataset = load_dataset("textures,per_class=30")
    means = np.array([[pixels(s).mean() for s in dataset.of("train") if s.label == label] for label in range(14)])
    assert means.mean(axis=1).std() < 0.35 * means.std(axis=1).mean()


def test_without_scikit_image_the_remedy_is_told(monkeypatch):
    monkeypatch.setattr(textures, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'bcnn\[demo\]'"):
        load_dataset("textures")


def test_scikit_image_itself_is_not_imported():
    import subprocess

    code = (
        "import sys; from bcnn.data.spec import load_dataset as l; l('textures').samples[0].open(); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "PIL" in loaded
    assert not {"skimage", "pooch"} & set(loaded)
