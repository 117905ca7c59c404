"""Options declared once, as the fields of a dataclass, for every command that takes them."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

_Command = Callable[..., int]


def option(text: str, *names: str, **more: Any) -> Any:
    """An option: its help, its names where they are not the field's, and what else typer is to know of it."""
    return typer.Option(*names, help=text, **more)


def takes_options(
    without: Collection[str] = (), helps: Mapping[str, str] | None = None
) -> Callable[[_Command], _Command]:
    """A command in whose place of each parameter that is a dataclass the user sees the options that are its fields.

    The fields are annotated as typer's parameters are. The command gets the dataclass, filled from what the user said.

    Args:
        without: fields that are no option of this command; they keep their defaults.
        helps: what this command says of a field, where it is not what the others say.
    """

    def decorate(command: _Command) -> _Command:
        signature = inspect.signature(command, eval_str=True)
        shown: list[inspect.Parameter] = []
        names: dict[str, list[str]] = {}  # of the options that each dataclass is filled from
        for parameter in signature.parameters.values():
            kind = parameter.annotation
            if isinstance(kind, type) and is_dataclass(kind):
                expanded = [option for option in _options_of(kind) if option.name not in without]
                names[parameter.name] = [option.name for option in expanded]
                shown += [_saying(option, (helps or {}).get(option.name)) for option in expanded]
            else:
                shown.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

        @functools.wraps(command)
        def filled(**given: Any) -> int:
            for name, options in names.items():
                kind = signature.parameters[name].annotation
                given[name] = kind(**{option: given.pop(option) for option in options})
            return command(**given)

        filled.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]  # read by inspect
        filled.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        return filled

    return decorate


@functools.cache
def _options_of(kind: type) -> tuple[inspect.Parameter, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(kind)
    )


def _saying(option: inspect.Parameter, text: str | None) -> inspect.Parameter:
    """The option with another help."""
    if text is None:
        return option
    assert get_origin(option.annotation) is Annotated
    kind, info = get_args(option.annotation)
    assert isinstance(info, ParameterInfo)
    info = copy.copy(info)
    info.help = text
    return option.replace(annotation=Annotated[kind, info])
