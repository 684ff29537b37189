"""DTD in its real layout."""

import pytest

from bcnn.data.spec import load_dataset

from .pictures import write


@pytest.fixture
def dtd(tmp_path):
    root = tmp_path / "dtd"
    names = [f"{kind}/{kind}_{i:04d}.jpg" for kind in ("dotted", "banded") for i in range(3)]
    for seed, name in enumerate(names):
        write(root / "images" / name, seed)
    (root / "labels").mkdir()
    for split, parts in {1: ["train", "val", "test"], 10: ["test", "train", "val"]}.items():
        for i, part in enumerate(parts):
            (root / "labels" / f"{part}{split}.txt").write_text("\n".join(names[i::3]) + "\n")
    return root


def of(dataset, split):
    return {sample.name[-5] for sample in dataset.of(split)}


def test_train_and_val_are_joined(dtd):
    for path in (dtd, dtd.parent):
        dataset = load_dataset(f"dtd:{path}")
        assert dataset.classes == ("banded", "dotted")
        assert (of(dataset, "train"), of(dataset, "test")) == ({"0", "1"}, {"2"})
        assert all(dataset.classes[s.label] == s.name.split("/")[0] for s in dataset.samples)
    assert dataset.samples[0].open().size == (48, 36)


def test_another_split(dtd):
    dataset = load_dataset(f"dtd:{dtd},split=10")
    assert dataset.name == "dtd,split=10"
    assert (of(dataset, "train"), of(dataset, "test")) == ({"1", "2"}, {"0"})
    with pytest.raises(FileNotFoundError, match=r"expected labels/train2\.txt"):
        load_dataset(f"dtd:{dtd},split=2")
    with pytest.raises(ValueError, match="dataset dtd: expected split >= 1 and <= 10, got 11"):
        load_dataset(f"dtd:{dtd},split=11")


def test_bad_lines_are_named(dtd):
    file = dtd / "labels" / "val1.txt"
    file.write_text("banded/banded_0001.jpg\nbanded_0001.jpg\n")
    with pytest.raises(ValueError, match=r"val1\.txt, line 2: expected <class>/<file>"):
        load_dataset(f"dtd:{dtd}")
    file.write_text("banded/banded_0000.jpg\n")  # in train as well
    with pytest.raises(ValueError, match=r"expected every image once, got 'banded/banded_0000\.jpg' 2 times"):
        load_dataset(f"dtd:{dtd}")
