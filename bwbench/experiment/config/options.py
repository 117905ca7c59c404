"""The options of a component, as users see them: names, defaults, meaning."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

_ATTRIBUTE = re.compile(r"\s{4}(\w+(?:, \w+)*): (.*)")


@dataclass(frozen=True)
class Option:
    """One option of a component.

    Attributes:
        name: as it stands in YAML.
        default: as it would stand in YAML; None too where there is none.
        required: it has no default.
        meaning: out of the docstring of the options class; may be empty.
    """

    name: str
    default: Any
    required: bool
    meaning: str


def options_of(model: type[BaseModel]) -> list[Option]:
    """The options of a component's ``Config``, in its order."""
    meanings = attribute_meanings(model)
    defaults = _defaults_as_written(model)
    found = []
    for name, field in model.model_fields.items():
        written = field.alias or name
        meaning = field.description or meanings.get(name, "")
        found.append(Option(written, defaults.get(written), field.is_required(), meaning))
    return found


def attribute_meanings(model: type[BaseModel]) -> dict[str, str]:
    """The ``Attributes:`` section of a class's docstring and of those it inherits from: text by attribute."""
    meanings: dict[str, str] = {}
    for base in reversed(model.__mro__):
        lines = inspect.cleandoc(base.__dict__.get("__doc__") or "").splitlines()
        if "Attributes:" not in lines:
            continue
        names: list[str] = []
        for line in lines[lines.index("Attributes:") + 1 :]:
            if match := _ATTRIBUTE.fullmatch(line):
                names = match[1].split(", ")
                meanings.update(dict.fromkeys(names, match[2]))
            elif line.startswith("     ") and names:
                meanings.update({name: f"{meanings[name]} {line.strip()}" for name in names})
            elif line.strip():
                break
    return meanings


def _defaults_as_written(model: type[BaseModel]) -> dict[str, Any]:
    """Defaults in YAML form: quantities with their unit, and what validation fills in."""
    fields = model.model_fields
    optional = {name for name, field in fields.items() if not field.is_required()}
    try:
        defaults = model()
    except ValidationError:  # something has to be given
        values = {name: fields[name].get_default(call_default_factory=True) for name in optional}
        defaults = model.model_construct(**values)
    return defaults.model_dump(mode="json", by_alias=True, include=optional, warnings=False)
