"""Names of the literature for points in (algorithm x collective x compression)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from bwbench.base.registry import ALGORITHMS
from bwbench.experiment.config.component_parsing import Spelling, split_spelling
from bwbench.methods.roles import REFERENCE, as_role


@dataclass(frozen=True)
class Preset:
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
    options: Mapping[str, Any] = field(default_factory=dict)
    baseline: int | None = None

    @property
    def axes(self) -> tuple[str, str, str]:
        """Names of the algorithm, the collective and the codecs, these joined by ``+``."""
        return self.algorithm, self.collective, codec_names(self.compression)


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "ddp",
            "every-step",
            "torch",
            "none",
            "torch's DistributedDataParallel as users run it: the baseline",
            baseline=1,
        ),
        Preset("ddp-fp16", "every-step", "torch", "fp16", "the same with torch's own fp16 hook: half the bytes"),
        Preset("ddp-powersgd", "every-step", "torch", "powersgd", "the same with torch's own PowerSGD hook"),
        Preset(
            "ddp-post-local-sgd",
            "torch-post-local-sgd",
            "torch",
            "none",
            "torch's own post-local SGD: DDP, then models",
        ),
        Preset("ring", "every-step", "ring", "none", "gradient all-reduce along our ring", baseline=2),
        Preset("ring-fp16", "every-step", "ring", "fp16", "the same in half precision: half the bytes"),
        Preset("ring-bf16", "every-step", "ring", "bf16", "the same in bfloat16: half the bytes, the range of fp32"),
        Preset("threshold", "every-step", "all-gather", "threshold", "large gradient entries only, the rest kept back"),
        Preset("top-k", "every-step", "all-gather", "top-k", "the largest 1 % of the gradient, the rest kept back"),
        Preset("random-k", "every-step", "ring", "random-k", "a random 10 % of the gradient, the same on all nodes"),
        Preset("dgc", "every-step", "all-gather", "dgc", "deep gradient compression: top-k of a momentum kept locally"),
        Preset("dgc-int4", "every-step", "all-gather", ("dgc", "int4"), "the same with 4 bits an entry"),
        Preset("powersgd", "every-step", "ring", "powersgd", "gradient matrices of rank 2, averaged by their factors"),
        Preset("parameter-server", "every-step", "parameter-server", "none", "one node averages for all", baseline=3),
        Preset("bytegrad", "every-step", "scatter-gather", "int8", "8 bits an entry, on the way there and back"),
        Preset(
            "ef-signsgd", "every-step", "scatter-gather", "sign", "1 bit an entry, what it loses is added next time"
        ),
        Preset("qsgd", "every-step", "scatter-gather", "qsgd", "entries rounded at random to a few levels"),
        Preset(
            "terngrad", "every-step", "scatter-gather", "terngrad", "minus one, zero or one times a scale, at random"
        ),
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
        Preset(
            "diloco-int4", "diloco", "scatter-gather", "int4", "DiLoCo with 4 bits a value, on the way there and back"
        ),
        Preset(
            "sparseloco",
            "diloco",
            "all-gather",
            ({"top-k": {"ratio": 0.03}}, "int2"),
            "the largest changes only, in 2 bits, every so many steps; residuals take the place of the outer momentum",
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
}


ALONE = "single"  # the preset of one node alone, as messages name it


@dataclass(frozen=True)
class Expanded:
    """A configuration without presets.

    Attributes:
        content: the configuration; ``collective`` may still be ``auto``.
        preset: the name that stood under ``algorithm``, whether a preset or not.
        idle: keys that were given and change nothing.
        warnings: what the user may not have meant.
    """

    content: dict[str, Any]
    preset: str
    idle: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def expand_preset(raw: Mapping[str, Any]) -> Expanded:
    """Replace ``algorithm: PRESET`` by the three keys.

    A collective or a compression that stands beside it wins over the preset's, ``collective: auto`` does not. What is
    no spelling of a component, or no known name, is left for validation to refuse.
    """
    content = {key: value for key, value in raw.items() if value is not None}
    spelling = _spelling(content.get("algorithm", "every-step"))
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
        defaults = {"algorithm": "every-step", "collective": "auto", "compression": "none"}
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


def _replaced(preset: Preset, content: Mapping[str, Any]) -> list[str]:
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
