"""From a SPEC to a dataset: `kind:PATH[,option=value...]`, or `kind[,option=value...]` for what is built in."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import unknown_name
from ..files import at_home
from . import DATASETS
from .contract import SPLITS, Dataset, shown

OPTION = re.compile(r"\s*([A-Za-z_]\w*)\s*=(.*)", re.DOTALL)
TABLES = (".csv", ".tsv")


def load_dataset(spec: str) -> Dataset:
    """The dataset that a SPEC names.

    A folder alone means `folder:`, a .csv or .tsv file alone `csv:`. Parts `,name=value` at the end are options,
    unless the path is there with them in its name.

    Raises: ValueError for an unknown kind, option or value, and for a dataset with which nothing can be learned;
        FileNotFoundError if the path is not there.
    """
    kind, text = _kind_of(spec)
    path, parts = _options_of(text)
    entry = DATASETS[kind]
    options = {option.name: option for option in entry.options}
    values = {}
    for name, value in parts:
        if name not in options:
            raise unknown_name(f"dataset {kind}", "option", name, options or ("none",))
        if name in values:
            raise ValueError(f"dataset {kind}: expected the option {name} once, got it twice; leave one out.")
        values[name] = options[name].read(value.strip())
        options[name].check(values[name], f"dataset {kind}")
    if entry.built_in:
        if path:
            raise ValueError(f"dataset {kind}: expected no path, for it is built in, got {shown(path)!r}.")
        dataset = entry.load(**values)
    else:
        if not path:
            raise ValueError(f"dataset {kind}: expected {kind}:PATH, got no path; the layout is: {entry.layout}.")
        dataset = entry.load(_existing(kind, path), **values)
    given = (f",{name}={values[name]}" for name in options if name in values)
    return checked(replace(dataset, name="".join((kind, *given))))


def checked(dataset: Dataset) -> Dataset:
    """The dataset itself if one can learn from it: samples, two classes, unique names, labels and splits that exist."""
    if not dataset.samples:
        raise ValueError(f"dataset {dataset.name}: expected images, got none; is this the right folder?")
    for sample in dataset.samples:
        if not 0 <= sample.label < len(dataset.classes) or sample.split not in SPLITS:
            raise ValueError(
                f"dataset {dataset.name}: expected a label below {len(dataset.classes)} and a split of "
                f"{' or '.join(SPLITS)}, got {sample.label} and {sample.split!r} for {shown(sample.name)!r}."
            )
    present = {sample.label for sample in dataset.samples}
    if len(present) < 2:
        (label,) = present
        raise ValueError(
            f"dataset {dataset.name}: expected images of two classes or more, got only "
            f"{shown(dataset.classes[label])!r}; is this the right folder?"
        )
    name, count = Counter(sample.name for sample in dataset.samples).most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"dataset {dataset.name}: expected every image once, got {shown(name)!r} {count} times; remove the others."
        )
    return dataset


def split_spec(spec: str) -> tuple[str, str, dict[str, str]]:
    """Kind, path (empty for what is built in) and options of a SPEC, as text; nothing is loaded.

    Example:
        >>> split_spec("aircraft:data/fgvc,level=family")
        ('aircraft', 'data/fgvc', {'level': 'family'})
    """
    kind, text = _kind_of(spec)
    path, options = _options_of(text)
    return kind, path, dict(options)


def _kind_of(spec: str) -> tuple[str, str]:
    """The kind, and the path with the options."""
    word = re.match(r"\s*([A-Za-z_][\w-]*)\s*([:,]|$)", spec)
    if word and word[1] in DATASETS:
        return word[1], spec[word.end() :] if word[2] == ":" else spec[word.start(2) :]
    path = at_home(_options_of(spec)[0])
    if spec.strip() and path.is_dir():
        return "folder", spec
    if path.suffix.lower() in TABLES and path.is_file():
        return "csv", spec
    if word and (word[2] or difflib.get_close_matches(word[1], DATASETS)):  # any other word may be a folder's name
        raise unknown_name("dataset", "kind", word[1], DATASETS)
    raise FileNotFoundError(
        f"dataset: expected kind:PATH, a folder, or a table ({', '.join(TABLES)}), got {shown(spec)!r}, "
        f"which is not there; the kinds are {', '.join(DATASETS)} (see: bcnn datasets list)."
    )


def _options_of(text: str) -> tuple[str, Sequence[tuple[str, str]]]:
    """Path and options; as much as possible belongs to the path if a file or folder of that name is there."""
    parts = text.split(",")
    first = len(parts)
    while first > 0 and OPTION.fullmatch(parts[first - 1]):
        first -= 1
    for end in range(len(parts), first, -1):
        if at_home(",".join(parts[:end])).exists():
            first = end
            break
    options = [match.groups() for match in map(OPTION.fullmatch, parts[first:]) if match]
    return ",".join(parts[:first]), [(name, value) for name, value in options]


def _existing(kind: str, text: str) -> Path:
    path = at_home(text)
    if not path.exists():
        raise FileNotFoundError(
            f"dataset {kind}: expected a path, got {shown(text)!r}, which is not there; "
            f"the layout is: {DATASETS[kind].layout}."
        )
    return path
