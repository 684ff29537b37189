"""SPECs: kinds, paths and options, and the checks of what was loaded."""

from dataclasses import replace
from pathlib import Path

import pytest

from bcnn.data import DATASETS
from bcnn.data.contract import Dataset, Sample
from bcnn.data.spec import checked, load_dataset, split_spec

from .pictures import write


@pytest.fixture
def images(tmp_path, monkeypatch):
    """A folder of two classes, in an own place and home."""
    for kind in "ab":
        for i in range(4):
            write(tmp_path / "home" / "set" / kind / f"{i}.jpg", i)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home" / "set"


def test_a_folder_by_all_its_names(images):
    expected = load_dataset(f"folder:{images}")
    for spec in (str(images), "set", "./set", "~/set", "folder:~/set", "folder:set", f"folder:{images}/"):
        dataset = load_dataset(spec)
        assert [s.name for s in dataset.samples] == [s.name for s in expected.samples], spec
        assert dataset.name == "folder"


def test_commas_belong_to_the_path_unless_they_are_options(images):
    for name in ("a,b", "a,b=c d", "x,seed=3"):
        other = images.rename(images.with_name(name))
        for spec in (f"folder:{other}", str(other)):
            assert load_dataset(spec).name == "folder"
            assert load_dataset(f"{spec},seed=7").name == "folder,seed=7"
        images = other


def test_options_are_named_in_the_order_of_the_registry(images):
    assert load_dataset("set,seed=07, test_share=.50").name == "folder,test_share=0.5,seed=7"


def test_the_table_s_suffix_says_what_it_is(images):
    (images / "list.csv").write_text("path,label\na/0.jpg,a\nb/0.jpg,b\n")
    assert load_dataset("set/list.csv").name == "csv"
    assert split_spec("set/list.csv,seed=1") == ("csv", "set/list.csv", {"seed": "1"})
    assert split_spec("textures,seed=1") == ("textures", "", {"seed": "1"})


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("cubs:set", ValueError, r"unknown kind 'cubs'; did you mean 'cub'\? Available: cub, cars"),
        ("texture", ValueError, r"unknown kind 'texture'; did you mean 'textures'"),
        ("nowhere/set", FileNotFoundError, r"expected kind:PATH, a folder, or a table .*got 'nowhere/set'"),
        ("", FileNotFoundError, r"expected kind:PATH"),
        ("cub", ValueError, r"cub: expected cub:PATH, got no path; the layout is: images\.txt"),
        ("cub:", ValueError, r"cub: expected cub:PATH"),
        ("cub:nowhere", FileNotFoundError, r"cub: expected a path, got 'nowhere', which is not there; the layout"),
        ("textures:set", ValueError, r"textures: expected no path, for it is built in, got 'set'"),
        ("set,sed=3", ValueError, r"folder: unknown option 'sed'; did you mean 'seed'"),
        ("cub:set,seed=3", ValueError, r"cub: unknown option 'seed'"),
        ("set,seed=1,seed=2", ValueError, r"expected the option seed once"),
        ("set,seed=x", ValueError, r"folder: expected seed to be a whole number, got 'x'"),
        ("set,seed=-1", ValueError, r"expected seed >= 0, got -1"),
        ("set,test_share=1.5", ValueError, r"expected test_share > 0 and < 1, got 1\.5"),
        ("set,test_share=nan", ValueError, r"expected test_share to be a finite number, got nan"),
        ("textures,per_class=0", ValueError, r"expected per_class >= 1, got 0"),
        ("set/a/0.jpg", FileNotFoundError, r"expected kind:PATH, a folder, or a table"),
    ],
)
def test_mistakes_are_named(images, spec, error, message):
    with pytest.raises(error, match=message):
        load_dataset(spec)


def dataset(*samples):
    return Dataset("x", ("a", "b"), tuple(Sample(name, label, split, Path(name)) for name, label, split in samples))


def test_what_cannot_be_learned_from_is_refused():
    good = dataset(("1", 0, "train"), ("2", 1, "train"))  # no test split: allowed
    assert checked(good) is good
    for bad, message in (
        (dataset(), "expected images, got none"),
        (dataset(("1", 0, "train"), ("2", 0, "test")), "two classes or more, got only 'a'"),
        (dataset(("1", 0, "train"), ("1", 1, "test")), "expected every image once, got '1' 2 times"),
        (dataset(("1", 0, "train"), ("2", 2, "test")), "expected a label below 2 .* got 2"),
        (dataset(("1", 0, "train"), ("2", -1, "test")), "expected a label below 2 .* got -1"),
        (dataset(("1", 0, "train"), ("2", 1, "dev")), "split of train or test, got 1 and 'dev'"),
        (replace(good, classes=("a",)), "expected a label below 1"),
    ):
        with pytest.raises(ValueError, match=message):
            checked(bad)


def test_every_option_is_a_parameter_of_its_loader():
    from inspect import signature

    for name, kind in DATASETS.items():
        parameters = set(signature(kind.load).parameters)
        assert parameters == {option.name for option in kind.options} | (set() if kind.built_in else {"path"}), name
        assert kind.about
        assert kind.layout
