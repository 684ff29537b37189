"""`bcnn methods`."""

from __future__ import annotations

from .common import make_console


def methods() -> None:
    """List the matrix functions, forward algorithms and gradient rules, and which of them go together."""
    from rich.table import Table

    from ..matfun.backward import BACKWARDS
    from ..matfun.forward import FORWARDS
    from ..matfun.functions import FUNCTIONS
    from ..matfun.plan import INTERNAL_OPTIONS, available_pairs, resolve_auto

    console = make_console()
    for function in FUNCTIONS:
        pairs = available_pairs(function)
        table = Table(title=f"{function}: forward (down) x backward (across)", title_justify="left")
        backwards = [name for name in BACKWARDS if any(b == name for _, b in pairs)]
        table.add_column("forward")
        for name in backwards:
            table.add_column(name, justify="center")
        default = resolve_auto(function, "cpu", 512)
        for forward in FORWARDS:
            if any(f == forward for f, _ in pairs):
                chosen = {b: "auto" if (forward, b) == default else "yes" for f, b in pairs if f == forward}
                table.add_row(forward, *(chosen.get(b, "") for b in backwards))
        console.print(table)
    table = Table(title="options, beside forward=, backward=, check=, return_info=", title_justify="left")
    table.add_column("method")
    table.add_column("options")
    for kind, registry in (("forward", FORWARDS), ("backward", BACKWARDS)):
        for name, method in registry.items():
            options = sorted(method.options - INTERNAL_OPTIONS)
            table.add_row(f"{kind} {name}", ", ".join(options))
    console.print(table)
