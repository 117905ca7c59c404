"""pydantic's errors in our words: the value, what is allowed, the nearest name."""

from __future__ import annotations

import difflib
import json
import typing
from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError, core_schema

Location = tuple[int | str, ...]

_WORDS_ABOUT_TYPE = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
    "finite_number": "a finite number",
}
_SIMPLE_BRANCHES = frozenset({"int", "float", "str", "bool"})  # how pydantic names the branches of a union
_PYDANTIC_KINDS = frozenset(typing.get_args(core_schema.ErrorType))
_BOUNDS = {
    "greater_than": ("more than {}", "gt"),
    "greater_than_equal": ("{} or more", "ge"),
    "less_than": ("less than {}", "lt"),
    "less_than_equal": ("at most {}", "le"),
    "multiple_of": ("a multiple of {}", "multiple_of"),
}


def problem(message: str, loc: Sequence[int | str] = ()) -> InitErrorDetails:
    """A line error that pydantic carries through unchanged, for ``ValidationError.from_exception_data``."""
    return InitErrorDetails(type=refused(message), loc=tuple(loc), input=None)


def refused(message: str) -> PydanticCustomError:
    """What a validator raises to say ``message`` and nothing else."""
    return PydanticCustomError("config", "{message}", {"message": message})


def nearest(name: object, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` or the empty text."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def unknown_key(key: object, known: Iterable[str]) -> str:
    """The message for a key that is not there: nearest name, then all names."""
    names = list(known)
    if not names:
        return f"unknown key {key!r}. No keys are known here."
    return f"unknown key {key!r}.{nearest(key, names)} Known: {', '.join(names)}."


def where_known(key: object, model: type[BaseModel]) -> str:
    """`` Did you mean 'compute: {virtual: …}'?`` of a key that stands one level deeper; else the empty text."""
    inside = [f"'{name}: {{{key}: …}}'" for name, section in _sections(model) if key in yaml_names(section)]
    return f" Did you mean {' or '.join(inside)}?" if inside else ""


def show(value: object) -> str:
    """A value as it would stand in YAML, shortened: true and not True, null and not None."""
    try:
        text = f"'{value}'" if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= 80 else f"{text[:77]}..."


def explain(error: ValidationError, model: type[BaseModel]) -> list[tuple[Location, str]]:
    """Every problem in ``error`` as (location inside the input, message).

    A value that fits none of several types (``16`` or ``auto``) is one problem: the branches' messages become one.
    """
    found: dict[Location, str] = {}
    separate = []
    for detail in error.errors(include_url=False):
        loc, message = detail["loc"], _message(detail, model)
        branch = loc[-1] if loc else None
        if not (isinstance(branch, str) and (branch in _SIMPLE_BRANCHES or branch.startswith("literal["))):
            separate.append((loc, message))
        elif loc[:-1] in found:
            found[loc[:-1]] += f"; {message.rpartition('. ')[2]}" if branch.startswith("literal[") else f"; {message}"
        else:
            found[loc[:-1]] = message
    return [*separate, *found.items()]


def yaml_names(model: type[BaseModel]) -> list[str]:
    """The keys of a model as a user writes them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _message(detail: ErrorDetails, model: type[BaseModel]) -> str:
    kind, value, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    if kind == "extra_forbidden":
        key, there = detail["loc"][-1], _model_at(model, detail["loc"][:-1])
        return unknown_key(key, yaml_names(there)) + where_known(key, there)
    if kind == "missing":
        return f"{str(detail['loc'][-1])!r} is missing"
    if kind in ("bool_type", "bool_parsing"):
        return f"{show(value)} is not a boolean; write true or false"
    if kind == "literal_error":
        allowed = [item.strip("'") for item in str(context["expected"]).replace(" or ", ", ").split(", ")]
        return f"{show(value)} is not allowed here.{nearest(value, allowed)} Allowed: {', '.join(allowed)}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"{show(value)} is out of range: it must be {words.format(context[key])}"
    if kind in ("too_short", "too_long"):
        bound = f"{context['min_length']} or more" if kind == "too_short" else f"at most {context['max_length']}"
        return f"{show(value)} has the wrong length: it takes {bound} entries"
    if kind == "string_too_short":
        return f"{show(value)} is too short: {context['min_length']} character(s) or more"
    if kind == "string_pattern_mismatch":
        return f"{show(value)} does not have the form {context['pattern']}"
    if kind in ("model_type", "model_attributes_type") and (there := _model_at(model, detail["loc"])) is not model:
        return f"{show(value)} is not a mapping (key: value). Known keys: {', '.join(yaml_names(there))}"
    if kind in _WORDS_ABOUT_TYPE:
        return f"{show(value)} is not {_WORDS_ABOUT_TYPE[kind]}"
    text = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return f"{show(value)}: {text}" if kind in _PYDANTIC_KINDS else text  # messages of our own name the value


def _model_at(model: type[BaseModel], loc: Location) -> type[BaseModel]:
    """The model that stands at ``loc``, by the annotations on the way there."""
    for key in loc:
        model = dict(_sections(model)).get(str(key), model)
    return model


def _sections(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Keys of a model, as a user writes them, that have keys inside, and the model of those."""
    for name, field in model.model_fields.items():
        candidates = [field.annotation, *typing.get_args(field.annotation)]
        if nested := [one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)]:
            yield field.alias or name, nested[0]
