"""Flags and YAML fields of commands, made from the options that configurations declare (`bcnn.options`)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import unknown_name
from ..options import REQUIRED, Option, without_need
from .common import is_given, is_typed

Command = Callable[..., None]


def with_options(*groups: Mapping[str, Option], config: bool = False) -> Callable[[Command], Command]:
    """A command that takes these options besides its own, and hears them by name or in ``**options``.

    The values are checked, and those of the configuration: tuples for lists. In the place of an option that was not
    given the command hears the default or, where that is decided later (`Option.show_default`), None. With `config` it
    takes all of them from a YAML file as well.
    """
    declared = {name: option for group in groups for name, option in group.items()}

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters
        kept = [
            parameter.replace(kind=parameter.KEYWORD_ONLY)
            for name, parameter in own.items()
            if parameter.kind is not parameter.VAR_KEYWORD and name not in declared
        ]
        if "context" not in own:
            kept.append(inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
        if config:
            kept.append(inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_CONFIG))

        @functools.wraps(command)
        def run(*, context: typer.Context, **values: Any) -> None:
            values.pop("config", None)  # its options are among the values
            heard = {**values, **_checked(context, declared, values)}
            command(**heard, **({"context": context} if "context" in own else {}))

        signature = inspect.Signature([*kept, *map(_parameter, declared.values())])
        vars(run).update(__signature__=signature, declared=declared)
        return run

    return decorate


def given(context: typer.Context, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that were typed or stand in a YAML file."""
    return {name: value for name, value in options.items() if is_given(context, name)}


def _parameter(option: Option) -> inspect.Parameter:
    """One flag; a switch that is on by default can be switched off."""
    annotation: Any = option.kind
    if option.several:
        annotation = str if option.commas else list[str]
    if option.argument:
        about = typer.Argument(help=option.help_text, metavar=option.name.upper())
    else:
        about = typer.Option(
            f"{option.flag}/{option.off_flag}" if option.off_flag else option.flag,
            help=option.help_text,
            rich_help_panel=option.panel,
            show_default=option.show_default or (option.kind is not bool or bool(option.default)),
            metavar=f"<{option.kind.__name__}> [{option.range_text}]" if option.range_text else None,
        )
    default = _default(option)
    if default is None:
        annotation = annotation | None
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[annotation, about],
        default=inspect.Parameter.empty if default is REQUIRED else default,
    )


def _default(option: Option) -> Any:
    if option.kind is bool:
        return bool(option.default)
    if option.show_default is not None:
        return None
    return ",".join(option.default) if option.commas else option.default


def _checked(context: typer.Context, declared: Mapping[str, Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the declared options; what does not fit is refused as it was typed."""
    chosen = {name: option.read(values[name]) for name, option in declared.items() if is_given(context, name)}
    lacking = without_need(chosen, declared)
    if lacking is not None:
        who, name, needed = context.params.get("config"), lacking.name, str(lacking.needs)
        if is_typed(context, name):
            switched_off = chosen[name] is False and lacking.off_flag
            who, name, needed = context.info_name, switched_off or lacking.flag, declared[needed].flag
        raise ValueError(f"{who}: {name} needs {needed}; give both, or leave {name} out.")
    for name, value in chosen.items():
        declared[name].check(value, str(context.info_name), declared[name].flag)
    return {name: chosen.get(name, None if o.show_default else o.default) for name, o in declared.items()}


def _load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Let a YAML file give the defaults; what stands on the command line goes first."""
    if path is None or context.resilient_parsing:
        return path
    from ..runs.config import read

    declared: Mapping[str, Option] = getattr(context.command.callback, "declared", {})
    known: dict[str, Any] = {}
    for own in context.command.params:
        if own.name not in ("config", "help"):
            known |= {word.lstrip("-").replace("-", "_").lower(): own for word in own.opts}
    defaults: dict[str, Any] = {}
    for name, value in read(path).items():
        parameter = known.get(name.lower().replace("-", "_"))
        if parameter is None:
            raise unknown_name(str(path), "option", name, known)
        if value is not None:
            option = declared.get(parameter.name)
            plain = _plain(option, value, path) if option else _as_parameter(parameter, name, value, path)
            defaults[parameter.name] = plain
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _plain(option: Option, value: Any, path: Path) -> Any:
    """A declared option's value from YAML, as it would be typed."""
    read = option.read(value)
    option.check(read, str(path))
    if read is None:
        return option.none
    if option.several:
        return ",".join(read) if option.commas else list(read)
    return read


def _as_parameter(parameter: Any, name: str, value: Any, path: Path) -> Any:
    """The same for an option that a command has to itself."""
    several = parameter.nargs == -1 or getattr(parameter, "multiple", False)
    is_flag = getattr(parameter, "is_flag", False)
    if (isinstance(value, bool) and not is_flag) or (isinstance(value, list) and not several):
        raise ValueError(f"{path}: expected a single number or text for {name}, got {value!r}.")
    return [value] if several and not isinstance(value, list) else value


_CONFIG = Annotated[
    Path | None,
    typer.Option(
        "--config", callback=_load_config, is_eager=True, exists=True, dir_okay=False,
        help="A YAML file with any of these options; the command line takes precedence.",
    ),
]  # fmt: skip
