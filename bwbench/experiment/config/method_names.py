"""Names of methods: what the literature's stand for (presets), and how a cell's method is shown (the arm's name)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from bwbench.base.component import Component
from bwbench.base.plain_data import JsonObject
from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.experiment.config.cell_config import LEFT_OUT, METHOD_KEYS, CellConfig
from bwbench.experiment.config.component_parsing import Spelling, parse_chain, parse_component, split_spelling
from bwbench.methods.roles import REFERENCE, ArmStanding, as_role, standing_by_name

Components = tuple[Component, ...]  # algorithm, collective, codecs
ALONE = "single"  # the preset of one node alone, as messages name it


@dataclass(frozen=True)
class MethodPreset:
    """What ``algorithm: NAME`` stands for.

    Attributes:
        compression: as under ``compression:``: a name, a mapping with options, or a chain of them.
        options: of the algorithm, where they are not its defaults.
        baseline: its place among what most people run, and others are compared with; None for all others.
    """

    name: str
    algorithm: str
    collective: str
    compression: Any
    summary: str
    options: JsonObject = field(default_factory=dict)
    baseline: int | None = None

    @property
    def axes(self) -> tuple[str, str, str]:
        """Names of the algorithm, the collective and the codecs, these joined by ``+``."""
        return self.algorithm, self.collective, codec_names(self.compression)


PRESETS: dict[str, MethodPreset] = {
    preset.name: preset
    for preset in (
        MethodPreset(
            "ddp",
            "every-step",
            "torch",
            "none",
            "torch's DistributedDataParallel as users run it: the baseline",
            baseline=1,
        ),
        MethodPreset("ddp-fp16", "every-step", "torch", "fp16", "the same with torch's own fp16 hook: half the bytes"),
        MethodPreset("ddp-powersgd", "every-step", "torch", "powersgd", "the same with torch's own PowerSGD hook"),
        MethodPreset(
            "ddp-post-local-sgd",
            "torch-post-local-sgd",
            "torch",
            "none",
            "torch's own post-local SGD: DDP, then models",
        ),
        MethodPreset("ring", "every-step", "ring", "none", "gradient all-reduce along our ring", baseline=2),
        MethodPreset("ring-fp16", "every-step", "ring", "fp16", "the same in half precision: half the bytes"),
        MethodPreset(
            "ring-bf16", "every-step", "ring", "bf16", "the same in bfloat16: half the bytes, the range of fp32"
        ),
        MethodPreset(
            "threshold", "every-step", "all-gather", "threshold", "large gradient entries only, the rest kept back"
        ),
        MethodPreset(
            "top-k", "every-step", "all-gather", "top-k", "the largest 1 % of the gradient, the rest kept back"
        ),
        MethodPreset(
            "random-k", "every-step", "ring", "random-k", "a random 10 % of the gradient, the same on all nodes"
        ),
        MethodPreset(
            "dgc", "every-step", "all-gather", "dgc", "deep gradient compression: top-k of a momentum kept locally"
        ),
        MethodPreset("dgc-int4", "every-step", "all-gather", ("dgc", "int4"), "the same with 4 bits an entry"),
        MethodPreset(
            "powersgd", "every-step", "ring", "powersgd", "gradient matrices of rank 2, averaged by their factors"
        ),
        MethodPreset(
            "parameter-server", "every-step", "parameter-server", "none", "one node averages for all", baseline=3
        ),
        MethodPreset("bytegrad", "every-step", "scatter-gather", "int8", "8 bits an entry, on the way there and back"),
        MethodPreset(
            "ef-signsgd", "every-step", "scatter-gather", "sign", "1 bit an entry, what it loses is added next time"
        ),
        MethodPreset("qsgd", "every-step", "scatter-gather", "qsgd", "entries rounded at random to a few levels"),
        MethodPreset(
            "terngrad", "every-step", "scatter-gather", "terngrad", "minus one, zero or one times a scale, at random"
        ),
        MethodPreset(
            "natural", "every-step", "scatter-gather", "natural", "entries rounded at random to powers of two"
        ),
        MethodPreset(
            "parameter-server-sharded", "every-step", "scatter-gather", "none", "every node is server of a share"
        ),
        MethodPreset("decentralized", "decentralized", "ring", "none", "mean of all weights, sent while nodes compute"),
        MethodPreset(
            "decentralized-shift-one", "decentralized", "gossip-pair", "none", "weights averaged in pairs, in turn"
        ),
        MethodPreset(
            "low-precision-decentralized",
            "low-precision-decentralized",
            "neighbours",
            "int8",
            "both neighbours learn how the weights have changed, in 8 bits",
        ),
        MethodPreset("async", "async", "ring", "none", "nobody waits: weights averaged in the background every 500 ms"),
        MethodPreset(
            "post-local-sgd",
            "local-sgd",
            "ring",
            "fp16",
            "gradients in every step at first, later parameters every so many steps",
            {"warmup": 100},
        ),
        MethodPreset(
            "local-sgd", "local-sgd", "ring", "fp16", "train alone, average the parameters every so many steps"
        ),
        MethodPreset(
            "overlapped-local-sgd",
            "local-sgd",
            "ring",
            "fp16",
            "the same with the average on its way while the nodes compute: nobody waits for the link",
            {"period": 64, "overlap": "auto"},
        ),
        MethodPreset("diloco", "diloco", "ring", "fp16", "train alone, an outer Nesterov step every so many steps"),
        MethodPreset(
            "diloco-int4", "diloco", "scatter-gather", "int4", "DiLoCo with 4 bits a value, on the way there and back"
        ),
        MethodPreset(
            "sparseloco",
            "diloco",
            "all-gather",
            ({"top-k": {"ratio": 0.03}}, "int2"),
            "the largest changes only, in 2 bits, every so many steps; residuals take the place of the outer momentum",
            {"period": 30, "outer_lr": 1.0, "outer_momentum": 0.0},
        ),
        MethodPreset(
            "streaming-diloco",
            "streaming-diloco",
            "scatter-gather",
            "int4",
            "DiLoCo in fragments of 4 bits a value, sent while the nodes compute",
            {"period": 16, "overlap": 4},
        ),
        MethodPreset(
            "qadam", "qadam", "scatter-gather", "int8", "Adam: variance frozen after a warm-up, momentum in 8 bits"
        ),
        MethodPreset(
            "one-bit-adam",
            "qadam",
            "scatter-gather",
            "sign",
            "Adam: variance frozen after a warm-up, momentum in 1 bit",
            {"send": "scaled-momentum"},
        ),
        MethodPreset("single", "single", "none", "none", "one node alone: is a second one worth it at all?"),
        MethodPreset(
            "no-communication", "no-communication", "none", "none", "the headroom that a free network would give"
        ),
    )
}


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
    name = preset.algorithm if preset is not None else spelling.name
    if not sends(name):
        idle = [key for key in ("collective", "compression") if content.get(key, "none") not in ("none", "auto")]
        content.update(collective="none", compression="none")
        if is_alone(name):
            idle += ["nodes"] if content.get("nodes", 1) != 1 else []
            idle += ["link"] if content.get("link", "unshaped") != "unshaped" else []
            content.update(nodes=1, link="unshaped")
        return Expanded(content, spelling.name, tuple(idle))
    if preset is None:
        defaults = {key: LEFT_OUT[key] for key in METHOD_KEYS}
        return Expanded({**defaults, **content}, spelling.name)
    if content.get("collective", "auto") == "auto":
        content["collective"] = preset.collective
    content.setdefault("compression", preset.compression)
    return Expanded(content, preset.name, (), tuple(_replaced(preset, content)))


def is_alone(algorithm: str) -> bool:
    """Whether an algorithm trains on one node without a network; False where that is not known."""
    try:
        return as_role(ALGORITHMS.load(algorithm).role) == REFERENCE
    except Exception:  # as for ``sends``
        return False


def baselines() -> list[str]:
    """Names of the presets that others are compared with, the most usual one first: the first that is there is it."""
    usual = [(preset.baseline, preset.name) for preset in PRESETS.values() if preset.baseline is not None]
    return [name for _, name in sorted(usual)]


def sends(algorithm: str) -> bool:
    """Whether an algorithm uses a collective and a codec at all; True where that is not known."""
    try:
        return bool(ALGORITHMS.load(algorithm).sends)
    except Exception:  # an unknown name, or a broken package: validation says so
        return True


def _replaced(preset: MethodPreset, content: JsonObject) -> list[str]:
    meaning = " x ".join(preset.axes)
    notes = []
    for key, own in zip(("collective", "compression"), preset.axes[1:], strict=True):
        name = codec_names(content[key])
        if own not in ("none", name):
            notes.append(f"algorithm: {preset.name} stands for {meaning}; '{key}: {name}' beside it replaces {own!r}")
    return notes


def codec_names(compression: object) -> str:
    """Names of a component or of a chain in any spelling, joined by ``+``."""
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
    names = [component.name for component in given]
    fitting = [preset for preset in PRESETS.values() if list(_names(preset.name)) == names]
    if not fitting:
        return _with_options(_joined(config), changed_options(given, tuple(_default(part) for part in given)))
    changes = [(changed_options(given, _components(preset.name)), preset.name) for preset in fitting]
    options, name = min(changes, key=lambda change: len(change[0]))
    return _with_options(name, options)


def standing_of(config: CellConfig) -> ArmStanding:
    """Role and kinship of a cell's method, as its components declare them."""
    return standing_by_name(config.algorithm.name, config.collective.name, [codec.name for codec in config.compression])


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
