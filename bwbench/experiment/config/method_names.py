"""Names of methods: what the literature's stand for (presets), and how a cell's method is shown (the arm's name)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from pydantic import ValidationError

from bwbench.base.component import Component
from bwbench.base.plain_data import Json, JsonObject
from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.experiment.config.cell_config import LEFT_OUT, METHOD_KEYS, CellConfig
from bwbench.experiment.config.component_parsing import Spelling, parse_chain, parse_component, split_spelling
from bwbench.methods.roles import REFERENCE, ArmStanding, as_role, standing_by_name
from bwbench.network.link.site_network import sizes_of

Components = tuple[Component, ...]  # algorithm, collective, codecs
ALONE = "single"  # the preset of one node alone, as messages name it


@dataclass(frozen=True)
class Preset:
    """What ``algorithm: NAME`` stands for.

    Attributes:
        compression: as under ``compression:``: a name, a mapping with options, or a chain of them.
        options: of the algorithm, where they are not its defaults; collective_options: of the collective.
    """

    name: str
    algorithm: str
    collective: str
    compression: Any
    summary: str
    options: JsonObject = field(default_factory=dict)
    collective_options: JsonObject = field(default_factory=dict)

    @property
    def spelled_collective(self) -> str | JsonObject:
        """As it stands under ``collective:``."""
        return {self.collective: dict(self.collective_options)} if self.collective_options else self.collective

    @cached_property
    def axes(self) -> tuple[str, str, str]:
        """Names of the algorithm, the collective and the codecs, these joined by ``+``."""
        return self.algorithm, self.collective, _codec_names(self.compression)


_PRESETS = (
    Preset("ddp", "every-step", "torch", "none", "torch's DistributedDataParallel as users run it: the baseline"),
    Preset("ddp-fp16", "every-step", "torch", "fp16", "the same with torch's own fp16 hook: half the bytes"),
    Preset("ddp-powersgd", "every-step", "torch", "powersgd", "the same with torch's own PowerSGD hook"),
    Preset(
        "ddp-post-local-sgd", "torch-post-local-sgd", "torch", "none", "torch's own post-local SGD: DDP, then models"
    ),
    Preset("ring", "every-step", "ring", "none", "gradient all-reduce along our ring"),
    Preset(
        "ring-unpaced",
        "every-step",
        "ring",
        "none",
        "our ring without a word about its link, as torch's is: no pace, no limit",
        collective_options={"paced": False},
    ),
    Preset("ring-fp16", "every-step", "ring", "fp16", "the same in half precision: half the bytes"),
    Preset("ring-bf16", "every-step", "ring", "bf16", "the same in bfloat16: half the bytes, the range of fp32"),
    Preset("threshold", "every-step", "all-gather", "threshold", "large gradient entries only, the rest kept back"),
    Preset("top-k", "every-step", "all-gather", "top-k", "the largest 1 % of the gradient, the rest kept back"),
    Preset("random-k", "every-step", "ring", "random-k", "a random 10 % of the gradient, the same on all nodes"),
    Preset("dgc", "every-step", "all-gather", "dgc", "deep gradient compression: top-k of a momentum kept locally"),
    Preset("dgc-int4", "every-step", "all-gather", ("dgc", "int4"), "the same with 4 bits an entry"),
    Preset(
        "cocktail-sgd",
        "every-step",
        "all-gather",
        ({"random-subset": {"ratio": 0.1}}, {"top-k": {"ratio": 0.1}}, "int4"),
        "the largest tenth of a random tenth of the gradient, in 4 bits",
    ),
    Preset(
        "demo",
        "demo",
        "all-gather",
        {"dct-top-k": {"error_feedback": {"in": "update", "decay": 0.999}}},
        "momenta stay where they are; of each the strongest frequencies are sent, and their signs stepped along",
    ),
    Preset(
        "deco-sgd",
        "deco-sgd",
        "all-gather",
        "none",
        "the largest entries some steps late; how many and how late follows from what the link does",
    ),
    Preset("powersgd", "every-step", "ring", "powersgd", "gradient matrices of rank 2, averaged by their factors"),
    Preset("parameter-server", "every-step", "parameter-server", "none", "one node averages for all"),
    Preset("bytegrad", "every-step", "scatter-gather", "int8", "8 bits an entry, on the way there and back"),
    Preset("ef-signsgd", "every-step", "scatter-gather", "sign", "1 bit an entry, what it loses is added next time"),
    Preset("qsgd", "every-step", "scatter-gather", "qsgd", "entries rounded at random to a few levels"),
    Preset("terngrad", "every-step", "scatter-gather", "terngrad", "minus one, zero or one times a scale, at random"),
    Preset("natural", "every-step", "scatter-gather", "natural", "entries rounded at random to powers of two"),
    Preset("parameter-server-sharded", "every-step", "scatter-gather", "none", "every node is server of a share"),
    Preset("decentralized", "decentralized", "ring", "none", "mean of all weights, sent while nodes compute"),
    Preset("decentralized-shift-one", "decentralized", "gossip-pair", "none", "weights averaged in pairs, in turn"),
    Preset(
        "low-precision-decentralized",
        "low-precision-decentralized",
        "neighbours",
        "int8",
        "both neighbours learn how the weights have changed, in 8 bits",
    ),
    Preset("async", "async", "ring", "none", "nobody waits: weights averaged in the background every 500 ms"),
    Preset(
        "post-local-sgd",
        "local-sgd",
        "ring",
        "fp16",
        "gradients in every step at first, later parameters every so many steps",
        {"warmup": 100},
    ),
    Preset("local-sgd", "local-sgd", "ring", "fp16", "train alone, average the parameters every so many steps"),
    Preset(
        "overlapped-local-sgd",
        "local-sgd",
        "ring",
        "fp16",
        "the same with the average on its way while the nodes compute: nobody waits for the link",
        {"period": 64, "overlap": "auto"},
    ),
    Preset("diloco", "diloco", "ring", "fp16", "train alone, an outer Nesterov step every so many steps"),
    Preset("diloco-int4", "diloco", "scatter-gather", "int4", "DiLoCo with 4 bits a value, on the way there and back"),
    Preset(
        "sparse-diloco",
        "diloco",
        "all-gather",
        ({"top-k": {"ratio": 0.03}}, "int2"),
        "the largest changes only, in 2 bits, every so many steps; residuals take the place of the outer momentum",
        {"period": 30, "outer_lr": 1.0, "outer_momentum": 0.0},
    ),
    Preset(
        "sparseloco",
        "diloco",
        "all-gather",
        ({"top-k": {"ratio": 1 / 64, "chunk": 4096, "error_feedback": {"decay": 0.95}}}, "int2"),
        "the same as published: the largest 64 of every 4096 changes, and residuals that decay",
        {"period": 30, "outer_lr": 1.0, "outer_momentum": 0.0},
    ),
    Preset(
        "streaming-diloco",
        "streaming-diloco",
        "scatter-gather",
        "int4",
        "DiLoCo in fragments of 4 bits a value, sent while the nodes compute",
        {"period": 16, "overlap": 4},
    ),
    Preset("muloco", "muloco", "ring", "fp16", "DiLoCo with optimizer: muon, whose steps agree better among nodes"),
    Preset(
        "muloco-int2",
        "muloco",
        "scatter-gather",
        "int2",
        "MuLoCo with 2 bits a value, on the way there and back; what they leave out is added next time",
    ),
    Preset("eager-diloco", "eager-diloco", "ring", "fp16", "DiLoCo whose means have a whole period to arrive"),
    Preset(
        "noloco",
        "noloco",
        "gossip-pair",
        "none",
        "DiLoCo in pairs that are drawn anew each time: nobody waits for all",
        collective_options={"pairs": "random"},
    ),
    Preset("sparta", "sparta", "ring", "none", "a random 0.5 % of the parameters averaged in every step"),
    Preset(
        "loscar",
        "sparta",
        "ring",
        "none",
        "a random 10 % of the parameters averaged every 16 steps, while the nodes compute",
        {"ratio": 0.1, "period": 16, "overlap": 8},
    ),
    Preset("des-loc", "des-loc", "ring", "fp16", "local Adam: parameters averaged now and then, moments more rarely"),
    Preset("qadam", "qadam", "scatter-gather", "int8", "Adam: variance frozen after a warm-up, momentum in 8 bits"),
    Preset(
        "one-bit-adam",
        "qadam",
        "scatter-gather",
        "sign",
        "Adam: variance frozen after a warm-up, momentum in 1 bit",
        {"send": "scaled-momentum"},
    ),
    Preset("single", "single", "none", "none", "one node alone: is a second one worth it at all?"),
    Preset("no-communication", "no-communication", "none", "none", "the headroom that a free network would give"),
)
PRESETS = {preset.name: preset for preset in _PRESETS}
# What most people run, and others are compared with, the most usual one first: the first that is there is it.
BASELINES = ("ddp", "ring", "parameter-server")


@dataclass(frozen=True)
class Expanded:
    """A configuration without presets.

    Attributes:
        content: the configuration; ``collective`` may still be ``auto``.
        preset: the name that stood under ``algorithm``, whether a preset or not.
        idle: keys that were given and change nothing.
        warnings: what the user may not have meant.
    """

    content: JsonObject
    preset: str
    idle: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def expand_preset(raw: JsonObject) -> Expanded:
    """Replace ``algorithm: PRESET`` by the three keys.

    A collective or a compression that stands beside it wins over the preset's, ``collective: auto`` does not. What is
    no spelling of a component, or no known name, is left for validation to refuse.
    """
    content: JsonObject = {key: value for key, value in raw.items() if value is not None}
    spelling = _spelling(content.get("algorithm", LEFT_OUT["algorithm"]))
    preset = PRESETS.get(spelling.name)
    if preset is not None:
        options = {**preset.options, **spelling.options}
        content["algorithm"] = {preset.algorithm: options} if options else preset.algorithm
    kind: type[Any] | None = None
    with contextlib.suppress(Exception):  # an unknown name, or a broken package: validation says so
        kind = ALGORITHMS.load(preset.algorithm if preset is not None else spelling.name)
    if not getattr(kind, "sends", True):
        idle = [key for key in ("collective", "compression") if content.get(key, "none") not in ("none", "auto")]
        content.update(collective="none", compression="none")
        if as_role(getattr(kind, "role", "")) == REFERENCE:
            idle += ["nodes"] if content.get("nodes", 1) != 1 else []
            idle += ["link"] if content.get("link", "unshaped") != "unshaped" else []
            content.update(nodes=1, link="unshaped")
            if isinstance(compute := content.get("compute"), Mapping):
                content["compute"] = _of_first_node(compute)
        return Expanded(content, spelling.name, tuple(idle))
    if preset is None:
        defaults = {key: LEFT_OUT[key] for key in METHOD_KEYS}
        return Expanded({**defaults, **content}, spelling.name)
    if content.get("collective", "auto") == "auto":
        content["collective"] = preset.spelled_collective
    content.setdefault("compression", preset.compression)
    meaning = " x ".join(preset.axes)
    notes = []
    for key, own in zip(("collective", "compression"), preset.axes[1:], strict=True):
        name = _codec_names(content[key])
        # A preset that is called as its algorithm names that axis alone; the others may stand beside it.
        if own not in ("none", name) and preset.name != preset.algorithm:
            notes.append(f"algorithm: {preset.name} stands for {meaning}; '{key}: {name}' beside it replaces {own!r}")
    return Expanded(content, preset.name, (), tuple(notes))


def _of_first_node(compute: Mapping[str, Json]) -> JsonObject:
    """What an experiment says of computing, without the nodes that one node alone does not have."""
    overrides = compute.get("overrides")
    if not isinstance(overrides, Mapping):
        return dict(compute)
    return {**compute, "overrides": {node: own for node, own in overrides.items() if str(node) == "0"}}


def _codec_names(compression: object) -> str:
    chain = compression if isinstance(compression, (list, tuple)) else [compression]
    return "+".join(_spelling(item).name for item in chain)


def _spelling(value: object) -> Spelling:
    try:
        return split_spelling(value, "component")
    except ValidationError:
        return Spelling(str(value))


def arm_name(config: CellConfig) -> str:
    """The display name of a cell's method, e.g. ``ring-fp16``, ``parameter-server-fp16``, ``threshold(value=0.01)``.

    The preset's name where its components are used; of several the one whose options are nearest. Options stand behind
    it where they are not the preset's, or not the defaults.
    """
    given = (config.algorithm, config.collective, *config.compression)
    names = "+".join(component.name for component in given)
    fitting = [preset for preset in PRESETS.values() if "+".join(preset.axes) == names]
    if fitting:
        changes = [(_changed_options(given, _components(preset.name)), preset.name) for preset in fitting]
        options, name = min(changes, key=lambda change: len(change[0]))
    else:
        codecs = "+".join(codec.name for codec in config.compression)
        parts = [] if config.algorithm.name == LEFT_OUT["algorithm"] else [config.algorithm.name]
        name = "-".join([*parts, *(part for part in (config.collective.name, codecs) if part != "none")])
        algorithm, collective, *codecs_of_it = (Component(part.name, type(part.options)()) for part in given)
        usual = (algorithm, _at_its_sites(config, collective), *codecs_of_it)
        options = _changed_options(given, usual)
    return f"{name}({','.join(f'{key}={value}' for key, value in options.items())})" if options else name


def _at_its_sites(config: CellConfig, usual: Component) -> Component:
    """The collective with the options that it takes from the link's sites where nobody says any."""
    if config.nodes < 2 or not config.link.sites:
        return usual
    with contextlib.suppress(ValueError):  # they do not go with so many nodes, which is said elsewhere
        sizes = sizes_of(config.link.sites, config.nodes)
        options = COLLECTIVES.load(usual.name).at_sites(usual.options, sizes)
        if getattr(options, "sites", ()) and not getattr(config.collective.options, "sites", ()):
            options = usual.options.model_copy(update={"workers_per_host": 0})  # whatever was said in their place tells
        return Component(usual.name, options)
    return usual


def arm_names(configs: Sequence[CellConfig]) -> list[str]:
    """The display names of an experiment's cells: those of their methods; and where one method comes with several
    optimizers, decays of the rate or averages of weights, what differs from the first that it comes with.

    ``single`` with SGD, and then ``single(optimizer=muon)``: two arms, and no repeats of each other.
    """
    first: dict[str, JsonObject] = {}
    names = []
    for config in configs:
        name, how = arm_name(config), _how_it_learns(config)
        usual = first.setdefault(name, how)
        others = ",".join(f"{key}={value}" for key, value in how.items() if value != usual[key])
        if others:
            name = f"{name[:-1]},{others})" if name.endswith(")") else f"{name}({others})"
        names.append(name)
    return names


def _how_it_learns(config: CellConfig) -> JsonObject:
    decay = getattr(config.optimizer.options, "decay", None)
    return {
        "optimizer": config.optimizer.name,
        "decay": "none" if decay is None else str(decay),
        "weight_average": config.weight_average.name,
    }


def standing_of(config: CellConfig) -> ArmStanding:
    """Role and kinship of a cell's method, as its components declare them."""
    return standing_by_name(config.algorithm.name, config.collective.name, [codec.name for codec in config.compression])


def _changed_options(given: Components, usual: Components) -> dict[str, object]:
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


@lru_cache(maxsize=256)
def _components(preset_name: str) -> Components:
    preset = PRESETS[preset_name]
    algorithm = parse_component({preset.algorithm: dict(preset.options)}, ALGORITHMS)
    return (algorithm, parse_component(preset.spelled_collective, COLLECTIVES), *parse_chain(preset.compression))
