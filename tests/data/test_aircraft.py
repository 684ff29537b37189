"""FGVC-Aircraft in its real layout, at three levels."""

import pytest

from bcnn.data.spec import load_dataset

from .pictures import write


@pytest.fixture
def planes(tmp_path):
    root = tmp_path / "fgvc-aircraft-2013b"
    data = root / "data"
    levels = {
        "variant": ("variants.txt", ["737-300", "A300B4", "An-12"]),
        "family": ("families.txt", ["Boeing 737", "A300", "An-12"]),
        "manufacturer": ("manufacturers.txt", ["Boeing", "Airbus", "Antonov"]),
    }
    numbers = ["0034309", "1025794", "0056978", "0900914"]
    for seed, number in enumerate(numbers):
        write(data / "images" / f"{number}.jpg", seed)
    for level, (file, names) in levels.items():
        (data / file).write_text("\n".join(names) + "\n")
        parts = {"train": [0], "val": [1], "trainval": [0, 1], "test": [2, 3]}
        for part, chosen in parts.items():
            lines = [f"{numbers[i]} {names[i % 3]}\n" for i in chosen]
            (data / f"images_{level}_{part}.txt").write_text("".join(lines))
    return root


@pytest.mark.parametrize("inner", ["", "data", ".."])
def test_trainval_and_test_at_the_paper_s_size(planes, inner):
    dataset = load_dataset(f"aircraft:{planes / inner}")
    assert dataset.name == "aircraft"
    assert dataset.classes == ("737-300", "A300B4", "An-12")
    assert [(s.name, s.label, s.split) for s in dataset.samples] == [
        ("0034309.jpg", 0, "train"),
        ("1025794.jpg", 1, "train"),
        ("0056978.jpg", 2, "test"),
        ("0900914.jpg", 0, "test"),
    ]
    assert dataset.samples[0].open().size == (48, 36)
    assert round(448 * dataset.resize_ratio) == 512


def test_levels_have_their_own_classes(planes):
    dataset = load_dataset(f"aircraft:{planes},level=family")
    assert dataset.name == "aircraft,level=family"
    assert dataset.classes == ("Boeing 737", "A300", "An-12")  # names with spaces
    assert [s.label for s in dataset.samples] == [0, 1, 2, 0]
    assert load_dataset(f"aircraft:{planes},level=manufacturer").classes[2] == "Antonov"
    with pytest.raises(ValueError, match=r"dataset aircraft: unknown level .*did you mean 'family'"):
        load_dataset(f"aircraft:{planes},level=familly")


def test_malformed_and_missing_files_are_named(planes):
    with (planes / "data" / "images_variant_test.txt").open("a") as file:
        file.write("\n1234567 Concorde\n")
    with pytest.raises(ValueError, match=r"images_variant_test\.txt, line 4: expected a class of variants\.txt"):
        load_dataset(f"aircraft:{planes}")
    (planes / "data" / "images_variant_test.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"images_variant_test\.txt: expected this file"):
        load_dataset(f"aircraft:{planes}")
    with pytest.raises(FileNotFoundError, match=r"aircraft: expected images_variant_trainval\.txt in .*the layout"):
        load_dataset(f"aircraft:{planes / 'data' / 'images'}")
