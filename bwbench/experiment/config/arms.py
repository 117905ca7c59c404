"""Names of methods: the literature's where a preset fits, else what they are made of."""

from __future__ import annotations

from functools import lru_cache

from bwbench.base.component import Component
from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.component_parsing import parse_chain, parse_component
from bwbench.experiment.config.presets import PRESETS, Preset

__all__ = ["PRESETS", "Preset", "arm_name"]

Components = tuple[Component, ...]  # algorithm, collective, codecs


def arm_name(config: CellConfig) -> str:
    """The display name of a cell's method, e.g. ``ring-fp16``, ``parameter-server-fp16``, ``threshold(value=0.01)``.

    The preset's name where its components are used; of several the one whose options are nearest. Options stand behind
    it where they are not the preset's, or not the defaults.
    """
    given = (config.algorithm, config.collective, *config.compression)
    names = [component.name for component in given]
    fitting = [preset for preset in PRESETS.values() if list(_names(preset.name)) == names]
    if not fitting:
        return _with_options(_joined(config), changed_options(given, tuple(_default(part) for part in given)))
    changes = [(changed_options(given, _components(preset.name)), preset.name) for preset in fitting]
    options, name = min(changes, key=lambda change: len(change[0]))
    return _with_options(name, options)


def changed_options(given: Components, usual: Components) -> dict[str, object]:
    """The options of components that differ from the usual ones, as they stand in YAML.

    Left out are those that another option took out.
    """
    changed: dict[str, object] = {}
    for component, other in zip(given, usual, strict=True):
        if component.options == other.options:
            continue
        values, others = (part.options.model_dump(mode="json", by_alias=True) for part in (component, other))
        changed |= {key: value for key, value in values.items() if value != others[key] and value is not None}
    return changed


def _joined(config: CellConfig) -> str:
    codecs = "+".join(codec.name for codec in config.compression)
    parts = [] if config.algorithm.name == "every-step" else [config.algorithm.name]
    return "-".join([*parts, *(part for part in (config.collective.name, codecs) if part != "none")])


def _with_options(name: str, options: dict[str, object]) -> str:
    return f"{name}({','.join(f'{key}={value}' for key, value in options.items())})" if options else name


@lru_cache(maxsize=256)  # asked for every preset and every point of a matrix
def _names(preset_name: str) -> tuple[str, ...]:
    algorithm, collective, codecs = PRESETS[preset_name].axes
    return (algorithm, collective, *codecs.split("+"))


@lru_cache(maxsize=256)
def _components(preset_name: str) -> Components:
    preset = PRESETS[preset_name]
    algorithm = parse_component({preset.algorithm: dict(preset.options)}, ALGORITHMS)
    return (algorithm, parse_component(preset.collective, COLLECTIVES), *parse_chain(preset.compression))


def _default(component: Component) -> Component:
    return Component(component.name, type(component.options)())
