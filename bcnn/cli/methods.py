"""`bcnn methods`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .common import make_console

if TYPE_CHECKING:
    from rich.table import Table

    from ..parts.registry import Part, Registry

MAX_WIDTH = 100


def methods() -> None:
    """List the parts of a network with their options, the matrix functions, and which methods go together."""
    console = make_console()
    console.width = min(console.width, MAX_WIDTH)
    for table in _tables():
        console.print(table)
        console.print()


def _tables() -> Iterator[Table]:
    from ..fronts import FRONTS
    from ..pooling import POOLINGS
    from ..pooling.normalize import NORMALIZATIONS
    from ..scorers import SCORERS

    yield _presets()
    yield _parts("Poolings (--pooling), of the features of one network where nothing else is said", POOLINGS)
    yield _parts("Normalizations (--normalize), in the order in which they are given", NORMALIZATIONS)
    yield _parts("Fronts (--front), which work on images before the networks see them", FRONTS)
    yield _parts("Scorers (--scorer), which give the scores of the classes", SCORERS)
    yield from _pairs()
    yield _options_of_methods()


# --- parts ------------------------------------------------------------------------------------------------------------


def _presets() -> Table:
    from ..pooling.head import PRESETS

    table = _table("Presets (--preset): a pooling and its normalizations under one name", "preset", "pooling")
    table.add_column("normalizations")
    for name, preset in PRESETS.items():
        _add(table, name, preset.pooling, ", ".join(preset.normalize))
    return table


def _parts(title: str, registry: Registry) -> Table:
    """A row per part and, below it, one per option."""
    table = _table(title, "name", "type", "default")
    table.add_column("what it is", ratio=1)
    for name, part in registry.items():
        _add(table, name, "", "", "; ".join([part.about, *_needs(part)]))
        further = getattr(part.make, "further_options", {})
        for option in part.options.values():
            if option.name not in further:
                default = "to be given" if option.default is inspect.Parameter.empty else str(option.default)
                _add(table, f"  {option.name}", option.type, default, option.help)
        if further:
            _add(table, "  ...", "", "", f"and the options of its methods, in the last table: {', '.join(further)}")
        table.add_section()
    if not registry:
        _add(table, "(none)", "", "", 'none comes with bcnn; "A part of your own" in docs/pooling.md adds one')
    return table


def _needs(part: Part) -> Iterator[str]:
    """What has to be there before a part can work."""
    if part.num_inputs != 1:
        yield f"needs {part.num_inputs} networks"
    if part.needs_fit:
        yield "is fitted on training images first"


# --- matrix functions -------------------------------------------------------------------------------------------------


def _pairs() -> Iterator[Table]:
    """A table per function: which forward goes with which backward."""
    from ..matfun.backward import BACKWARDS
    from ..matfun.forward import FORWARDS
    from ..matfun.functions import FUNCTIONS
    from ..matfun.plan import available_pairs, resolve_auto

    for function in FUNCTIONS:
        pairs = available_pairs(function)
        table = _table(f"{function}: forward (down) x backward (across)", "forward")
        backwards = [name for name in BACKWARDS if any(b == name for _, b in pairs)]
        for name in backwards:
            table.add_column(name, justify="center")
        default = resolve_auto(function, "cpu", 512)
        for forward in FORWARDS:
            if any(f == forward for f, _ in pairs):
                chosen = {b: "auto" if (forward, b) == default else "yes" for f, b in pairs if f == forward}
                table.add_row(forward, *(chosen.get(b, "") for b in backwards))
        yield table


def _options_of_methods() -> Table:
    from ..matfun.backward import BACKWARDS
    from ..matfun.forward import FORWARDS
    from ..matfun.plan import INTERNAL_OPTIONS

    table = _table("options, beside forward=, backward=, check=, return_info=", "method")
    table.add_column("options")
    for name, forward in FORWARDS.items():
        table.add_row(f"forward {name}", ", ".join(sorted(forward.options - INTERNAL_OPTIONS)))
    for name, backward in BACKWARDS.items():
        table.add_row(f"backward {name}", ", ".join(sorted(backward.options - INTERNAL_OPTIONS)))
    return table


# --- layout -----------------------------------------------------------------------------------------------------------


def _table(title: str, *columns: str) -> Table:
    """A table whose first columns are never broken over two lines."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _add(table: Table, *cells: str) -> None:
    """A row of plain text: square brackets mean nothing in it."""
    from rich.text import Text

    table.add_row(*map(Text, cells))
