"""What is known of every part, beside its name; a module from its text."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from ..errors import unknown_name
from .fitting import FittedPart
from .shapes import Shape
from .text import Written, read

# Arguments of a part's class that are not for the user to give: what it is given, and how many classes there are.
GIVEN = ("self", "inputs", "num_classes")


@dataclass(frozen=True)
class Option:
    """One argument of a part."""

    name: str
    type: str
    default: Any  # `inspect.Parameter.empty` where it has to be given
    help: str

    def __str__(self) -> str:
        return self.name if self.default is inspect.Parameter.empty else f"{self.name}={self.default!r}"


@dataclass(frozen=True)
class Part:
    """A module's class and what there is to say about it.

    Options are the arguments of its class, their help the lines of its docstring. A class that asks for `inputs` is
    told the shapes that it will be given; a `FittedPart` is fitted on training images before anything else happens.
    """

    make: type[nn.Module]
    about: str

    @cached_property
    def options(self) -> dict[str, Option]:
        """The options of the part, in order."""
        helps: dict[str, str] = {}
        for own in reversed(self.make.__mro__):
            helps |= _arguments_in(inspect.cleandoc(own.__doc__ or ""))
        found = {
            p.name: Option(p.name, _type_of(p), p.default, helps.get(p.name, ""))
            for p in self._parameters
            if p.name not in GIVEN and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        }
        further: Mapping[str, str] = getattr(self.make, "further_options", {})  # of a class that takes **options
        return found | {name: Option(name, "Any", None, text) for name, text in further.items()}

    @property
    def positional(self) -> list[str]:
        """The options that may be given without their names."""
        return [p.name for p in self._parameters if p.name not in GIVEN and p.kind is p.POSITIONAL_OR_KEYWORD]

    @property
    def wants_inputs(self) -> bool:
        """Whether it has to know the shapes that it will be given."""
        return any(p.name == "inputs" for p in self._parameters)

    @property
    def needs_fit(self) -> bool:
        """Whether the part is fitted on training images."""
        return issubclass(self.make, FittedPart)

    @property
    def num_inputs(self) -> int:
        """From how many networks the part takes features."""
        return int(getattr(self.make, "num_inputs", 1))

    @property
    def _parameters(self) -> Iterable[inspect.Parameter]:
        """Of its class and, where that passes further ones on, of those that it comes from."""
        found: dict[str, inspect.Parameter] = {}
        for own in self.make.__mro__:
            if "__init__" in vars(own):
                parameters = inspect.signature(own.__init__).parameters  # type: ignore[misc]
                found |= {name: p for name, p in parameters.items() if name not in found}
                if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                    break
            if own is nn.Module:
                break
        return found.values()


class Registry(dict[str, Part]):
    """The parts of one kind, by name.

    Args:
        kind: what they are called in errors.
        example: of a text.
        parts: by name.
    """

    def __init__(self, kind: str, example: str, parts: Mapping[str, Part]):
        super().__init__(parts)
        self.kind, self.example = kind, example

    def read(self, text: str) -> Written:
        """The text of a part, checked and in the one form that it has: options by name, defaults left out."""
        if not isinstance(text, str):
            raise ValueError(f"network: expected a {self.kind} as text such as {self.example!r}, got {text!r}.")
        try:
            written = read(text, self.kind, self.example)
        except ValueError as error:
            raise ValueError(f"network: {error}; available: {', '.join(self) or 'none so far'}.") from None
        if written.name not in self:
            raise unknown_name("network", self.kind, written.name, tuple(self) or ("none so far",))
        options = self[written.name].options
        in_order = self[written.name].positional
        if len(written.arguments) > len(in_order):
            raise ValueError(
                f"network: expected options of {written.name} by name, as in name(option=value), got {text!r}."
            )
        first = dict(zip(in_order, written.arguments, strict=False))
        for name in written.options:
            if name not in options or name in first:
                wrong = "got it twice" if name in first else f"got {name!r}"
                raise ValueError(
                    f"network: expected options that {written.name} takes ({', '.join(options) or 'none'}), each "
                    f"once, {wrong} in {text!r}."
                )
        given = {name: _as_declared(options[name], value) for name, value in (first | written.options).items()}
        told = {n: given[n] for n, option in options.items() if n in given and not _is_default(option, given[n])}
        return Written(written.name, told)

    def make(self, text: str, *, inputs: tuple[Shape, ...] | None = None, **given: Any) -> nn.Module:
        """The module that a text describes.

        Args:
            text: the part.
            inputs: the shapes that it will be given, where they are known.
            **given: what the network tells its parts besides.
        """
        written = self.read(text)
        part = self[written.name]
        if part.wants_inputs:
            if inputs is None:
                raise ValueError(
                    f"network: {written.name} has to know the channels of the features; pass them, as in "
                    "bcnn.Head(preset, channels=512)."
                )
            given["inputs"] = inputs
        try:
            made = part.make(**written.options, **given)
        except TypeError as error:
            raise ValueError(f"network: expected options that {written.name} takes, got {text!r}: {error}.") from None
        made.written = str(written)  # type: ignore[assignment]  # a model's file says what its parts are
        return made


def _type_of(parameter: inspect.Parameter) -> str:
    """The annotated type of an argument; empty if it has none."""
    if parameter.annotation is parameter.empty:
        return ""
    text = parameter.annotation
    return text if isinstance(text, str) else inspect.formatannotation(text)


def _as_declared(option: Option, value: Any) -> Any:
    """A whole number as a float where the default is one, so that 0 and 0.0 are the same text."""
    if not isinstance(option.default, float) or type(value) is not int:
        return value
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"network: expected {option.name} to be a number that a float can hold.") from None


def _is_default(option: Option, value: Any) -> bool:
    return type(value) is type(option.default) and bool(value == option.default)


def _arguments_in(doc: str) -> dict[str, str]:
    """The lines of the section Args of a docstring, by argument."""
    lines = doc.partition("\nArgs:\n")[2].splitlines()
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        if not line.strip():
            break
        if line.startswith("    ") and not line.startswith("     "):
            name, _, text = line.strip().partition(":")
            found[name] = text.strip()
        elif name:
            found[name] += " " + line.strip()
    return found
