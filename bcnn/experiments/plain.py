"""Records to JSON and back: the one place where they are plain dictionaries and lists."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import MISSING, field, fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


def later(default: Any) -> Any:
    """A field that was added later: records in which it has its default are stored without it, as they were before."""
    return field(default=default, metadata={"later": True})


def to_plain(value: Any) -> Any:
    """A record as JSON has it: tuples are lists, and numbers that are not a number are null."""
    if is_dataclass(value):
        own = {one: getattr(value, one.name) for one in fields(value)}
        return {one.name: to_plain(v) for one, v in own.items() if not one.metadata.get("later") or v != one.default}
    if isinstance(value, list | tuple):
        return [to_plain(own) for own in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def short_digest(content: Any) -> str:
    """Eight hexadecimal digits that tell apart what differs in its JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def from_plain(kind: Any, content: Any) -> Any:
    """What `to_plain` made JSON of: a record of this kind, or the value of a field of this type."""
    if is_dataclass(kind):
        return _record(kind, content)
    if isinstance(kind, UnionType):  # "X | None"
        return None if content is None else from_plain(get_args(kind)[0], content)
    if get_origin(kind) is tuple:  # "tuple[X, ...]"
        if not isinstance(content, list):
            raise ValueError(f"expected a list, got {content!r}")
        return tuple(from_plain(get_args(kind)[0], own) for own in content)
    return math.nan if kind is float and content is None else content


def _record(kind: Any, content: Any) -> Any:
    if not isinstance(content, dict):
        raise ValueError(f"expected an object for {kind.__name__}, got {content!r}")
    known = {own.name: own for own in fields(kind)}
    needed = [name for name, own in known.items() if own.default is MISSING and own.default_factory is MISSING]
    wrong = [f"no field {name!r}" for name in needed if name not in content]
    wrong += [f"an unknown field {name!r}" for name in content if name not in known]
    if wrong:
        raise ValueError(f"expected the fields of {kind.__name__}, got {wrong[0]}; another version may have written it")
    hints = get_type_hints(kind)
    return kind(**{name: from_plain(hints[name], value) for name, value in content.items()})
