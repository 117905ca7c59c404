"""Reading a component in any of its spellings, with its options checked by the component's own ``Config``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import InitErrorDetails, core_schema

from bwbench.base.component import Component, ComponentConfig
from bwbench.base.errors import ConfigError
from bwbench.base.explain import Location, explain, problem, show, yaml_names
from bwbench.base.plain_data import Json, JsonObject, whole_floats_as_int
from bwbench.base.registry import COMPRESSIONS, REGISTRIES, Registry


@dataclass(frozen=True)
class Spelling:
    """A component as it was written.

    Attributes:
        name: the component's name, not yet looked up.
        options: the options given.
        place: where the options stand inside the value, for error locations.
        scalars: of ``{dirichlet: 0.3}`` ``(0.3,)``, which sets the component's first option; else empty.
    """

    name: str
    options: JsonObject = field(default_factory=dict)
    place: Location = ()
    scalars: tuple[Json, ...] = ()


def split_spelling(value: object, kind: str) -> Spelling:
    """Take ``fp16``, ``{name: fp16, …}``, ``{fp16: {…}}`` or ``{fp16: 0.3}`` apart; ValidationError otherwise."""
    if isinstance(value, str):
        return Spelling(value)
    if isinstance(value, Mapping) and "name" in value:
        name = value["name"]
        if isinstance(name, str):
            return Spelling(name, {key: option for key, option in value.items() if key != "name"})
        raise refused([problem(f"{show(name)} is not the name of {_a(kind)}", ("name",))])
    if isinstance(value, Mapping) and len(value) == 1:
        name, options = next(iter(value.items()))
        if isinstance(options, Mapping):
            return Spelling(str(name), dict(options), (name,))
        return Spelling(str(name), {}, (name,), () if options is None else (options,))
    forms = f"write the name of {_a(kind)}, {{name: NAME, OPTION: …}}, or {{NAME: {{OPTION: …}}}}"
    if isinstance(value, list):
        forms += "; several to compare belong under 'matrix:'"
    raise refused([problem(f"{show(value)} is not {_a(kind)}; {forms}")])


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def parse_component(value: object, registry: Registry) -> Component:
    """The component that ``value`` spells; raises ValidationError whose locations are those of the input."""
    if isinstance(value, Component):
        return value
    spelling = split_spelling(value, registry.kind)
    name, options, place = spelling.name, spelling.options, spelling.place
    if name not in registry:
        raise refused([problem(registry.unknown(name, elsewhere(name, registry)), place)])
    try:
        config_class: type[ComponentConfig] = registry.load(name).Config
    except ConfigError:
        raise
    except Exception as error:  # an entry point of another package may fail in any way
        text = f"{registry.kind} {name!r} cannot be loaded: {type(error).__name__}: {error}"
        raise refused([problem(text, place)]) from error
    for scalar in spelling.scalars:
        names = yaml_names(config_class)
        if not names:
            raise refused([problem(f"{registry.kind} {name!r} takes no options, got {show(scalar)}", place)])
        options = {names[0]: scalar}
    try:
        text = json.dumps(whole_floats_as_int(options), sort_keys=True, default=_not_json) if options else "{}"
        return Component(name, _options(config_class, text))
    except ValidationError as error:
        errors = []
        for loc, text in explain(error, config_class):
            text = text.replace("unknown key", f"{registry.kind} {name!r} has no option", 1)
            if spelling.scalars:
                loc, text = (), f"{loc[0] if loc else name}: {text}"
            errors.append(problem(text, (*place, *loc)))
        raise refused(errors) from None


def parse_chain(value: object, registry: Registry = COMPRESSIONS) -> tuple[Component, ...]:
    """A chain of components: one spelling, or a list of them. ``none`` stands alone."""
    if not isinstance(value, (list, tuple)):
        return (parse_component(value, registry),)
    if not value:
        raise refused([problem(f"an empty list is no {registry.kind}; write 'none' for sending values as they are")])
    chain: list[Component] = []
    errors: list[InitErrorDetails] = []
    for index, item in enumerate(value):
        try:
            chain.append(parse_component(item, registry))
        except ValidationError as error:
            errors += [problem(detail["msg"], (index, *detail["loc"])) for detail in error.errors()]
    if len(value) > 1 and any(component.name == "none" for component in chain):
        errors.append(problem("'none' stands alone; leave it out of the chain"))
    if errors:
        raise refused(errors)
    return tuple(chain)


@dataclass(frozen=True)
class ComponentOf:
    """Annotation of a pydantic field: ``Annotated[Component, ComponentOf(MODELS)]``."""

    registry: Registry

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Parse any spelling, serialise to ``{"name": …, **options}``."""
        return core_schema.no_info_plain_validator_function(
            lambda value: parse_component(value, self.registry),
            serialization=core_schema.plain_serializer_function_ser_schema(Component.to_json),
        )

    def __get_pydantic_json_schema__(self, schema: object, handler: GetJsonSchemaHandler) -> JsonObject:
        """A placeholder: config/experiment_schema.py describes all spellings of all components of a registry."""
        return {"title": self.registry.kind}


def refused(errors: list[InitErrorDetails]) -> ValidationError:
    """The exception that a pydantic validator raises to report several problems with locations of their own."""
    return ValidationError.from_exception_data("component", errors)


def elsewhere(name: str, registry: Registry) -> str:
    """A hint where a name belongs to another kind of component."""
    kinds = [other.kind for other in REGISTRIES.values() if other is not registry and name in other]
    return f" It is {_a(kinds[0])}: write it under '{kinds[0]}:'." if kinds else ""


def _not_json(value: object) -> NoReturn:
    raise refused([problem(f"{value!r} is not a value that YAML or JSON can hold")])


@lru_cache(maxsize=4096)
def _options(config_class: type[ComponentConfig], options_json: str) -> ComponentConfig:
    """Options checked once for each distinct text; JSON mode is strict about types and takes a list for a tuple."""
    return config_class.model_validate_json(options_json, strict=True, by_alias=True, by_name=False)
