"""Options, declared once: one field of a configuration gives the flag, the YAML field, the documentation and the error.

    @dataclass(frozen=True)
    class FinetuneConfig:
        lr: float = option(0.001, above=0, needs="finetune", help="The learning rate.")

`declared_by(FinetuneConfig)` reads this back. `bcnn.cli.options` makes flags of it, `bcnn.runs.config` reads and writes
YAML by it, `benchmarks/update_docs.py` puts it into the documentation, and `check` refuses values that do not fit it.

Nothing heavy is imported here, so `bcnn train --help` does not wait for torch.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from functools import cache
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from .errors import unknown_name

REQUIRED = ...  # the default of an option that must be given

_KINDS: Mapping[type, tuple[type, str]] = {
    bool: (bool, "true or false"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "text"),
}
_BOUNDS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "at_least": (">=", operator.ge),
    "above": (">", operator.gt),
    "at_most": ("<=", operator.le),
    "below": ("<", operator.lt),
}


@dataclass(frozen=True)
class Names:
    """The names in a registry whose module is slow to import, such as ``Names("pooling.head", "PRESETS")``.

    Attributes:
        module: where it is, below `bcnn`.
        name: of the dictionary or tuple.
        more: words that are allowed besides, such as "auto".
    """

    module: str
    name: str
    more: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Read the names from the registry itself."""
        return (*self.more, *getattr(import_module(f"{__package__}.{self.module}"), self.name))

    def names_in_source(self) -> tuple[str, ...]:
        """The same, read from the source: milliseconds where the import takes seconds. For help texts."""
        path = Path(__file__).parent.joinpath(*self.module.split("."))
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == self.name for target in targets):
                for words in filter(None, map(_texts, ast.walk(node))):  # the outermost first
                    return (*self.more, *words)
        return self.names()  # it is put together in another way


def _texts(node: ast.AST) -> list[str]:
    """The keys of a dictionary or the entries of a tuple, if they are texts."""
    entries = getattr(node, "keys", None) or getattr(node, "elts", [])
    texts = [entry.value for entry in entries if isinstance(entry, ast.Constant) and isinstance(entry.value, str)]
    return texts if len(texts) == len(entries) else []


@dataclass(frozen=True)
class Option:
    """What is known of one option.

    Attributes:
        help: what it does, in whole sentences.
        choices: the words it may be.
        at_least: a bound of a number, and so are the next three.
        needs: the option without which this one means nothing.
        panel: the heading under which help and documentation show it.
        flag: on the command line; by default "--" and the name.
        show_default: what happens if it is not given, where the default does not say so by itself.
        none: the word that stands for None on the command line and in YAML.
        commas: several values stand in one text, separated by commas, and not in a flag each.
        argument: it stands on the command line without a flag.
        result: whether the result of a run depends on it.
        write_default: whether files hold it where it is the default. False for an option that came later: runs of
            before stay the same runs.
        name, kind, several, optional, part, default: of the field, filled in by `declared_by`. Several are a tuple of
            `kind`; a part is a configuration of its own, which a flag switches on.
    """

    help: str
    choices: tuple[str, ...] | Names = ()
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    needs: str | None = None
    panel: str | None = None
    flag: str = ""
    show_default: str | None = None
    none: str | None = None
    commas: bool = False
    argument: bool = False
    result: bool = True
    write_default: bool = True
    name: str = ""
    kind: type = str
    several: bool = False
    optional: bool = False
    part: bool = False
    default: Any = REQUIRED

    # --- in words -----------------------------------------------------------------------------------------------------

    @property
    def range_text(self) -> str:
        """The bounds, such as ">= 0 and < 1"; nothing where there are none."""
        bounds = ((sign, getattr(self, name)) for name, (sign, _) in _BOUNDS.items())
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)

    @property
    def default_text(self) -> str:
        """The default as it is shown; nothing for an option that must be given."""
        if self.show_default is not None or self.default is REQUIRED:
            return self.show_default or ""
        if self.kind is bool:
            return "on" if self.default else "off"
        return ",".join(self.default) if self.several else str(self.default)

    @property
    def off_flag(self) -> str:
        """The flag that switches it off, for one that is on by default; else nothing."""
        return f"--no-{self.flag.removeprefix('--')}" if self.kind is bool and self.default is True else ""

    @property
    def help_text(self) -> str:
        """The help, followed by the choices."""
        names = self.choices.names_in_source() if isinstance(self.choices, Names) else self.choices
        return f"{self.help} One of {', '.join(names)}." if names else self.help

    # --- checks -------------------------------------------------------------------------------------------------------

    def check(self, value: Any, who: str, spelled: str | None = None) -> None:
        """Refuse a value that does not fit; `spelled` is what the option is called where the value comes from."""
        if value is None and self.optional:
            return
        if self.part and dataclasses.is_dataclass(value):
            return  # it has checked itself
        if self.several and not isinstance(value, tuple | list):
            raise self._wrong(who, spelled, "to be a list", value)
        for one in value if self.several else (value,):
            self._check_one(one, who, spelled)

    def _check_one(self, value: Any, who: str, spelled: str | None) -> None:
        kind, wanted = _KINDS[self.kind]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._wrong(who, spelled, f"to be {wanted}", value)
        if isinstance(value, Real) and not math.isfinite(value):
            raise self._wrong(who, spelled, "to be a finite number", value)
        for name, (_, holds) in _BOUNDS.items():
            bound = getattr(self, name)
            if bound is not None and not holds(value, bound):
                raise self._wrong(who, spelled, self.range_text, value)
        names = self.choices.names() if isinstance(self.choices, Names) else self.choices
        if names and value not in names:
            raise unknown_name(who, self.name, value, names)

    def _wrong(self, who: str, spelled: str | None, expected: str, value: Any) -> ValueError:
        remedy = f"; the default is {self.default_text}" if self.default_text else ""
        return ValueError(f"{who}: expected {spelled or self.name} {expected}, got {value!r}{remedy}.")

    # --- plain values: YAML and the command line ----------------------------------------------------------------------

    def read(self, value: Any) -> Any:
        """The field's value from a plain one, as far as it can be read as one; to be checked."""
        if value is None or (self.none is not None and value == self.none):
            return () if self.several and not self.optional else None
        if not self.several:
            return self._read_one(value)
        if isinstance(value, str) and self.commas:
            value = [word.strip() for word in value.split(",") if word.strip()]
        return tuple(map(self._read_one, value if isinstance(value, tuple | list) else [value]))

    def _read_one(self, value: Any) -> Any:
        """YAML takes 1e-3 for text, and the name 2011 for a number."""
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if self.kind is str and is_number:
            return str(value)
        if self.kind in (int, float) and isinstance(value, str):
            try:
                return self.kind(value)
            except ValueError:
                return value
        return value

    def write(self, value: Any) -> Any:
        """The reverse, for YAML; None for what is left out."""
        if self.part:
            return True if value else None
        if value is None:
            return self.none
        if value == self.default and not self.write_default:
            return None
        return list(value) if self.several else value


def option(default: Any = MISSING, **about: Any) -> Any:
    """A field of a configuration with its declaration; the keywords are the attributes of `Option`."""
    return dataclasses.field(default=default, metadata={"option": Option(**about)})


@cache
def declared_by(config: type) -> dict[str, Option]:
    """The options that a configuration declares, in order, by name."""
    hints = get_type_hints(config)
    return {field.name: _filled(field, hints[field.name]) for field in dataclasses.fields(config)}


def _filled(field: dataclasses.Field[Any], hint: Any) -> Option:
    optional = NoneType in get_args(hint)
    if optional:
        (hint,) = (kind for kind in get_args(hint) if kind is not NoneType)
    several, part = get_origin(hint) is tuple, dataclasses.is_dataclass(hint)
    kind = bool if part else get_args(hint)[0] if several else hint
    declared: Option = field.metadata["option"]
    return dataclasses.replace(
        declared,
        name=field.name,
        kind=kind,
        several=several,
        optional=optional,
        part=part,
        default=REQUIRED if field.default is MISSING else field.default,
        flag=declared.flag or "--" + field.name.replace("_", "-"),
    )


def pick(config: type, *names: str) -> dict[str, Option]:
    """Return some of the options of a configuration."""
    return {name: declared_by(config)[name] for name in names}


def check(config: Any, who: str) -> None:
    """Refuse a configuration with a value that does not fit its declaration."""
    kind: type = type(config)
    for name, declared in declared_by(kind).items():
        declared.check(getattr(config, name), who)


def without_need(given: Mapping[str, Any], options: Mapping[str, Option]) -> Option | None:
    """The first option that was given without the one it needs, if any; None counts as not given."""
    for name, value in given.items():
        needed = options[name].needs if name in options else None
        if value is not None and needed is not None and needed in options and not given.get(needed):
            return options[name]
    return None
