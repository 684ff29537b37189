"""Parts as text, ``name(option=value, ...)``: the same in Python, YAML, on the command line and in a model's header."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from typing import Any

_TOKENS = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|.""", re.DOTALL)  # quoted text whole, else letters
_FORM = re.compile(r"(?P<name>[\w./:@-]+)\s*(?P<inside>\(.*\))?", re.DOTALL)


@dataclass(frozen=True)
class Written:
    """A name with its arguments, as they were written.

    Example:
        >>> read("bilinear(eps=1, eps_scale=absolute)").options
        {'eps': 1, 'eps_scale': 'absolute'}
        >>> str(read("matrix_power( 0.3 )"))
        'matrix_power(0.3)'
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    arguments: tuple[Any, ...] = ()  # without a name, before a registry has told what they are called

    def __str__(self) -> str:
        inside = [repr(_plain(value)) for value in self.arguments]
        inside += [f"{name}={_plain(value)!r}" for name, value in self.options.items()]
        return f"{self.name}({', '.join(inside)})" if inside else self.name

    def with_options(self, **options: Any) -> Written:
        """The same with further options; one that is given again is replaced."""
        return replace(self, options={**self.options, **options})


def read(text: str, kind: str = "part", example: str = "l2") -> Written:
    """The name and the arguments in ``"name"`` or ``"name(1, option=2)"``; values are literals, words need no quotes.

    Args:
        text: what is written.
        kind: of part, for the error.
        example: of such a part, for the error.
    """
    try:
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError
        node = ast.parse(f"part{found['inside'] or '()'}", mode="eval").body
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise ValueError
        if any(keyword.arg is None for keyword in node.keywords):  # **
            raise ValueError
        names = [str(keyword.arg) for keyword in node.keywords]
        if len(set(names)) < len(names):
            raise ValueError
        options = {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
        return Written(found["name"], options, tuple(map(_value, node.args)))
    except (SyntaxError, ValueError, AttributeError, TypeError, RecursionError, MemoryError):
        raise ValueError(f"expected a {kind} such as {example!r}, got {text!r}") from None


def _plain(value: Any) -> Any:
    """Turn NumPy's numbers into Python's."""
    return value.item() if hasattr(value, "item") else value


def _value(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def split(text: str) -> list[str]:
    """Texts of several parts, separated by commas that are inside neither brackets nor quotes.

    Example:
        >>> split("vgg16(cut=relu4_3, proj_dim=64), alexnet")
        ['vgg16(cut=relu4_3, proj_dim=64)', 'alexnet']
    """
    found, depth = [""], 0
    for token in _TOKENS.findall(text):
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        if token == "," and depth == 0:
            found.append("")
        else:
            found[-1] += token
    return [part.strip() for part in found if part.strip()]
