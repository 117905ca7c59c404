"""A component named in the YAML with its options: ``compression: {threshold: {value: 0.001}}``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from bwbench.base.registry import Registry


class ComponentConfig(BaseModel):
    """Base of every component's options: frozen, and strict about unknown keys.

    The class of a component names its options class in the attribute ``Config``. Python attributes carry the unit
    (``step_time_s``), the YAML key (an alias) does not. Options that come from YAML or JSON are checked strictly:
    ``"3"`` and ``true`` are no numbers, infinity and NaN are refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Component:
    """A name out of a registry together with its validated options.

    ``to_json`` gives ``{"name": …, **options}`` with every default filled in, which is also valid YAML input.
    """

    name: str
    options: ComponentConfig = field(default_factory=ComponentConfig)

    def to_json(self) -> dict[str, Any]:
        """``{"name": …, **options}``: quantities as text with a unit, every default filled in."""
        return {"name": self.name, **self.options.model_dump(mode="json", by_alias=True)}

    def build(self, registry: Registry) -> Any:
        """An instance of the component's class: ``cls(options)``."""
        return registry.load(self.name)(self.options)
