"""Tables of images."""

import pytest

from bcnn.data.spec import load_dataset

from .pictures import write


def table(path, text, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def test_columns_in_any_order_extra_ones_ignored_paths_relative_to_the_table(tmp_path):
    write(tmp_path / "set" / "images" / "1.jpg")
    away = write(tmp_path / "away, far.jpg")
    text = f'path,note,split,label\nimages/1.jpg,x,train,dog\n\n"{away}","a,b",TEST,cat\n'
    dataset = load_dataset(str(table(tmp_path / "set" / "list.csv", text, "utf-8-sig")))
    assert dataset.name == "csv"
    assert [(s.name, dataset.classes[s.label], s.split) for s in dataset.samples] == [
        ("images/1.jpg", "dog", "train"),
        (str(away), "cat", "test"),
    ]
    assert [sample.open().size for sample in dataset.samples] == [(48, 36)] * 2


def test_tabs_and_numbers_as_labels(tmp_path):
    text = "path\tlabel\n" + "".join(f"{i}, x.jpg\t{label}\n" for i, label in enumerate([10, 9, 2, 10, 9, 2]))
    dataset = load_dataset(f"csv:{table(tmp_path / 'list.TSV', text)}")
    assert dataset.classes == ("2", "9", "10")
    assert [s.label for s in dataset.samples] == [2, 1, 0, 2, 1, 0]
    assert sorted(s.label for s in dataset.of("test")) == [0, 1, 2]  # one of two, no split in the table
    assert load_dataset(f"csv:{tmp_path / 'list.TSV'},seed=3,test_share=.5").name == "csv,test_share=0.5,seed=3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1: expected a header with path, label"),
        ("a.jpg,cat\nb.jpg,dog\n", r"line 1: expected a header with path, label"),
        ("path,label\na.jpg,cat\nb.jpg\n", r"line 3: expected 2 cells as in the header"),
        ("path,label\na.jpg,cat\nb,c.jpg,dog\n", r"line 3: expected 2 cells"),
        ("path,label\na.jpg,cat\nb.jpg, \n", r"line 3: expected a path and a label"),
        ("path,label\na.jpg,cat\n,dog\n", r"line 3: expected a path and a label"),
        ("path,label,split\na.jpg,cat,train\nb.jpg,dog,dev\n", r"line 3: expected train or test .* got 'dev'"),
        ("path,label\na.jpg,cat\nb.jpg,dog\na.jpg,dog\n", r"line 4: expected every path once \(it is in line 2\)"),
        ("path,label\n", r"expected images, got none"),
        ("path,label\na.jpg,cat\nb.jpg,cat\n", r"two classes or more, got only 'cat'"),
        ("path,label\na.jpg,cat\n" + "x" * 200_000 + ",dog\n", r"line 3: expected a table, got 'field larger"),
    ],
)
def test_bad_tables_are_errors_with_the_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_dataset(str(table(tmp_path / "list.csv", text)))


def test_options_of_a_split_that_is_there_are_refused(tmp_path):
    path = table(tmp_path / "list.csv", "path,label,split\na.jpg,cat,train\nb.jpg,dog,test\n")
    with pytest.raises(ValueError, match="leave them out"):
        load_dataset(f"{path},test_share=0.5")
    with pytest.raises(FileNotFoundError, match="csv: expected a table at"):
        load_dataset(f"csv:{tmp_path}")
