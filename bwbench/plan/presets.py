"""Names of methods: the literature's where a preset fits, else what they are made of."""

from __future__ import annotations

from bwbench.config.cell import CellConfig
from bwbench.config.component import Component
from bwbench.config.presets import PRESETS, Preset

__all__ = ["PRESETS", "Preset", "arm_name"]

_BY_AXES = {preset.axes: preset.name for preset in PRESETS.values()}


def arm_name(config: CellConfig) -> str:
    """The display name of a cell's method, e.g. ``ring-fp16``, ``parameter-server-fp16``, ``threshold(value=0.01)``.

    The preset's name where its three components are used. Options stand behind it where they are not the defaults.
    """
    codecs = "+".join(codec.name for codec in config.compression)
    name = _BY_AXES.get((config.algorithm.name, config.collective.name, codecs))
    if name is None:
        parts = [] if config.algorithm.name == "every-step" else [config.algorithm.name]
        parts += [part for part in (config.collective.name, codecs) if part != "none"]
        name = "-".join(parts)
    options = [
        f"{key}={value}"
        for component in (config.algorithm, config.collective, *config.compression)
        for key, value in changed_options(component).items()
    ]
    return f"{name}({','.join(options)})" if options else name


def changed_options(component: Component) -> dict[str, object]:
    """The options that differ from the defaults, as they stand in YAML; without those that another option took out."""
    given = component.options
    if given == (defaults := type(given)()):
        return {}
    values, usual = (options.model_dump(mode="json", by_alias=True) for options in (given, defaults))
    return {key: value for key, value in values.items() if value != usual[key] and value is not None}
