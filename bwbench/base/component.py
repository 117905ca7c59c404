"""A component named in the YAML with its options, ``compression: {threshold: {value: 0.001}}``; and what users are told
of these: names, defaults, meaning.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from bwbench.base.plain_data import Json, JsonObject
from bwbench.base.registry import Registry


class ComponentConfig(BaseModel):
    """Base of every component's options: frozen, and strict about unknown keys.

    The class of a component names its options class in the attribute ``Config``. Python attributes carry the unit
    (``step_time_s``), the YAML key (an alias) does not. Options that come from YAML or JSON are checked strictly:
    ``"3"`` and ``true`` are no numbers, infinity and NaN are refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    def within(self, budget_samples: float) -> Self:
        """These options in a training of so many samples: what is left out, and depends on that, is filled in."""
        return self

    def without_link(self) -> Self:
        """These options where there is no link: what says no more than how to send on one is at its default."""
        return self


@dataclass(frozen=True)
class Component:
    """A name out of a registry together with its validated options.

    ``to_json`` gives ``{"name": …, **options}`` with every default filled in, which is also valid YAML input.
    """

    name: str
    options: ComponentConfig = field(default_factory=ComponentConfig)

    def to_json(self) -> JsonObject:
        """``{"name": …, **options}``: quantities as text with a unit, every default filled in."""
        return {"name": self.name, **self.options.model_dump(mode="json", by_alias=True)}

    def within(self, budget_samples: float) -> Component:
        """The same component in a training of so many samples."""
        return Component(self.name, self.options.within(budget_samples))

    def without_link(self) -> Component:
        """The same component where there is no link."""
        return Component(self.name, self.options.without_link())

    def build(self, registry: Registry) -> Any:
        """An instance of the component's class: ``cls(options)``."""
        return registry.load(self.name)(self.options)


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
    default: Json
    required: bool
    meaning: str


def options_of(model: type[BaseModel]) -> list[Option]:
    """The options of a component's ``Config``, in its order. Defaults are what validation makes of them."""
    meanings, fields = attribute_meanings(model), model.model_fields
    optional = {name for name, info in fields.items() if not info.is_required()}
    try:
        filled = model()
    except ValidationError:  # something has to be given
        values = {name: fields[name].get_default(call_default_factory=True) for name in optional}
        filled = model.model_construct(**values)
    defaults = filled.model_dump(mode="json", by_alias=True, include=optional, warnings=False)
    found = []
    for name, info in fields.items():
        written = info.alias or name
        meaning = info.description or meanings.get(name, "")
        found.append(Option(written, defaults.get(written), info.is_required(), meaning))
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
