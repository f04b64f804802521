"""Groups of options: a dataclass whose fields are options is declared once and built for each command that takes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

Result = TypeVar("Result")


def parsed(parse: Callable[[str], object], *names: str, **how: Any) -> Any:
    """An option whose text ``parse`` turns into the value; a default is a value already, and stays as it is."""

    def parse_text(value: object) -> object:
        return parse(value) if isinstance(value, str) else value

    return typer.Option(*names, parser=parse_text, **how)


def flattened(command: Callable[..., Result]) -> Callable[..., Result]:
    """The command with an option for each field of the groups that it takes, as typer wants it.

    A group is a frozen dataclass; its ``panel`` names it in the help.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters = [
        option
        for name, parameter in inspect.signature(command).parameters.items()
        for option in (_options_of(groups[name]) if name in groups else [_option(name, parameter.default, hints[name])])
    ]

    @wraps(command)
    def build_and_call(**given: Any) -> Result:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    build_and_call.__annotations__ = {option.name: option.annotation for option in parameters}
    build_and_call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return build_and_call


def _options_of(group: Any) -> Iterator[inspect.Parameter]:
    hints: Mapping[str, Any] = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield _option(field.name, default, hints[field.name], panel=group.panel)


def _option(name: str, default: object, hint: Any, *, panel: str | None = None) -> inspect.Parameter:
    """The parameter that typer reads: what is parsed comes as a text, whatever it becomes."""
    kind, declared = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
    if declared is not None:
        declared = copy(declared)
        if isinstance(declared, OptionInfo):
            declared.rich_help_panel = panel
        repeats = any(get_origin(part) is list for part in (kind, *get_args(kind)))
        text: Any = list[str] if repeats else str
        hint = Annotated[kind if declared.parser is None else text, declared]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
