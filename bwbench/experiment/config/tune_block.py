"""``tune:`` of an experiment: rates to begin with, and options of methods that are searched together with the rate."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from bwbench.base.component import Component
from bwbench.base.errors import Problem
from bwbench.base.explain import show, unknown_key
from bwbench.base.plain_data import Json, JsonObject, canonical
from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS, Registry
from bwbench.base.yaml_document import Place
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.component_parsing import parse_component
from bwbench.experiment.config.method_names import arm_name, standing_of

RATE = "rate"
LEAST_RATES = 3  # a parabola has three numbers
MAX_VARIANTS = 64  # each costs three trainings of every arm
_FORM = "write 'tune: {period: [4, 16, 64]}', or {rate: [0.01, 0.02, 0.04]}"

Options = Mapping[str, Sequence[Json]]  # values of options by their name


@dataclass(frozen=True)
class TuneBlock:
    """What an experiment says of tuning.

    Attributes:
        rates: that the grid begins with, rising; empty for those of the optimizer.
        options: names of options with the values to try, as written; each belongs to the arms that have it.
    """

    rates: tuple[float, ...] = ()
    options: tuple[tuple[str, tuple[Json, ...]], ...] = ()


def read_tune(value: Json, place: Place, problems: list[Problem]) -> TuneBlock:
    """The block; what is wrong goes to ``problems``. Whether arms have its options is asked by ``refusals_of``."""
    if value is None:
        return TuneBlock()
    if not isinstance(value, Mapping):
        problems.append(place.problem(f"tune: {show(value)} is not a mapping; {_FORM}"))
        return TuneBlock()
    rates: tuple[float, ...] = ()
    options = []
    for name, values in value.items():
        at = place.inside(name)
        if not isinstance(values, list) or not values:
            problems.append(at.problem(f"tune.{name}: {show(values)} is not a list of values; {_FORM}"))
        elif name == RATE:
            rates = _rates(values, at, problems)
        elif len({canonical(one) for one in values}) < len(values):
            problems.append(at.problem(f"tune.{name}: {show(values)} has a value twice; drop one"))
        else:
            options.append((str(name), tuple(values)))
    return TuneBlock(rates, tuple(options))


def refusals_of(block: TuneBlock, configs: Sequence[CellConfig], place: Place) -> Iterator[Problem]:
    """What is wrong with the block for these cells: options that no arm has, values that one cannot take."""
    distinct = {_method(config): config for config in configs}
    known = {name: None for config in distinct.values() if _may_be_tuned(config) for name in _names(config)}
    for name, _ in block.options:
        if name not in known:
            text = unknown_key(name, (RATE, *known))
            yield place.inside(name).problem(f"tune: no arm here learns otherwise with it: {text}")
    for config in distinct.values():
        for name, values in tuned_options(block, config).items():
            for number, value in enumerate(values):
                try:
                    with_options(config, {name: value})
                except ValidationError as error:
                    text = f"tune.{name}: arm {arm_name(config)!r}: {error.errors()[0]['msg']}"
                    yield place.inside(name, number).problem(text)
        if (count := len(variants_of(block, config))) > MAX_VARIANTS:
            text = f"tune: {count} combinations for arm {arm_name(config)!r}; at most {MAX_VARIANTS}, drop values"
            yield place.problem(text)


def as_searched(config: CellConfig) -> CellConfig:
    """The configuration with which the rate of this arm is searched: a method that chooses by its link chooses nothing.

    The same object where nothing about it hangs on a link.
    """
    options = config.algorithm.build(ALGORITHMS).as_searched()
    if options == config.algorithm.options:
        return config
    return config.model_copy(update={"algorithm": replace(config.algorithm, options=options)})


def tuned_options(block: TuneBlock, config: CellConfig) -> dict[str, list[Json]]:
    """Those of the block's options that this arm has, with their values; none for arms that compute the plain mean."""
    if not block.options or not _may_be_tuned(config):
        return {}
    names = _names(config)
    return {name: list(values) for name, values in block.options if name in names}


def variants_of(block: TuneBlock, config: CellConfig) -> list[JsonObject]:
    """All sets of values of the options of an arm; the first is what the experiment gives it, so that it says nothing.

    A variant that comes to the same as an earlier one is left out.
    """
    options = tuned_options(block, config)
    found: dict[str, JsonObject] = {_method(config): {}}
    for values in itertools.product(*options.values()):
        variant = dict(zip(options, values, strict=True))
        try:
            found.setdefault(_method(with_options(config, variant)), variant)
        except ValidationError:
            continue  # said by ``refusals_of``
    return list(found.values())


def with_options(config: CellConfig, options: JsonObject) -> CellConfig:
    """The configuration with other options of its components. Raises ValidationError where one cannot take a value."""
    if not options:
        return config
    return config.model_copy(
        update={
            "algorithm": _changed(config.algorithm, ALGORITHMS, options),
            "collective": _changed(config.collective, COLLECTIVES, options),
            "compression": tuple(_changed(codec, COMPRESSIONS, options) for codec in config.compression),
        }
    )


def given_options(config: CellConfig, names: Sequence[str]) -> JsonObject:
    """What a configuration says of options by their names."""
    return {name: value for one in _components(config) for name, value in one.to_json().items() if name in names}


def _rates(values: Sequence[Json], place: Place, problems: list[Problem]) -> tuple[float, ...]:
    rates = [float(one) for one in values if isinstance(one, (int, float)) and not isinstance(one, bool) and one > 0]
    if len(rates) < len(values) or rates != sorted(set(rates)) or len(rates) < LEAST_RATES:
        text = f"tune.rate: {show(values)} is no grid: {LEAST_RATES} or more positive numbers, rising"
        problems.append(place.problem(text))
        return ()
    return tuple(rates)


def _may_be_tuned(config: CellConfig) -> bool:
    # Options of kin change how long a step takes, not what is learnt. What chooses by its link does not in a search.
    return standing_of(config).kinship is None and as_searched(config) is config


def _components(config: CellConfig) -> tuple[Component, ...]:
    return (config.algorithm, config.collective, *config.compression)


def _names(config: CellConfig) -> list[str]:
    return [name for one in _components(config) for name in one.to_json() if name != "name"]


def _changed(component: Component, registry: Registry, options: JsonObject) -> Component:
    content = component.to_json()
    own = {name: value for name, value in options.items() if name in content and name != "name"}
    return parse_component({**content, **own}, registry) if own else component


def _method(config: CellConfig) -> str:
    return canonical([one.to_json() for one in _components(config)])
