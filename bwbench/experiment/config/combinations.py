"""Which components go together: refusals with the reason.

Each key by itself has been checked before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from bwbench.base.component import Component
from bwbench.base.data_spec import LANGUAGE_MODELLING
from bwbench.base.errors import ConfigError
from bwbench.base.explain import Location, nearest
from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS, DATASETS, MODELS, OPTIMIZERS
from bwbench.base.step_time import SteadyStepTime, StepTimeTrace
from bwbench.base.units import DURATION
from bwbench.experiment.config.auto_collective import refusal_of
from bwbench.experiment.config.cell_config import MOST_VIRTUAL_NODES, CellConfig, Chain
from bwbench.experiment.config.cell_dilation import dilation_refusals
from bwbench.experiment.config.component_parsing import ComponentOf
from bwbench.experiment.config.real_size import shape_refusals
from bwbench.methods.compression.chain import chain_refusal
from bwbench.methods.compression.error_feedback import LINEAR_OPTIMIZERS, PLAIN, residual_of
from bwbench.methods.roles import REFERENCE, averages_gradients
from bwbench.network.backend_choice import choose
from bwbench.network.link.frame_sizes import DEFAULT_MTU
from bwbench.network.link.link_checks import unknown_nodes
from bwbench.network.link.node_link import TcpSettings
from bwbench.network.namespaces.addresses import MAX_NODES

MAX_TIME_S = 365 * 86400.0


@dataclass(frozen=True)
class Finding:
    """Something wrong with the value at ``loc`` of a configuration as it was written."""

    loc: Location
    message: str


class MethodConfig(BaseModel):
    """A method for a number of nodes by the keys of an experiment file, without presets and ``auto``.

    Attributes:
        optimizer: that it is to work with, never read from a file; None where that is not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: int = Field(ge=1)
    algorithm: Annotated[Component, ComponentOf(ALGORITHMS)]
    collective: Annotated[Component, ComponentOf(COLLECTIVES)]
    compression: Chain
    optimizer: Annotated[Component, ComponentOf(OPTIMIZERS)] | None = None


NamedMethod: TypeAlias = MethodConfig | CellConfig


def refusals(config: NamedMethod) -> list[Finding]:
    """Everything about a method that cannot work, whatever it trains; of a cell all that cannot work."""
    try:
        found = [finding for check in _METHOD_CHECKS for finding in check(config)]
        if isinstance(config, CellConfig):
            found += [finding for check in _CHECKS for finding in check(config)]
        return found
    except Exception as error:
        if isinstance(config, MethodConfig) or not config.plugins:
            raise
        text = f"a component could not be asked what it goes with: {type(error).__name__}: {error}"
        return [Finding(("plugins",), f"{text}; derive it from the base class of its kind")]


def remarks(config: NamedMethod) -> list[str]:
    """What is to be said of a cell that works."""
    codecs = [COMPRESSIONS.load(codec.name) for codec in config.compression]
    said = COLLECTIVES.load(config.collective.name).remark(codecs)
    return [f"collective {config.collective.name!r}: {said}"] if said else []


def momentum_doubt(config: NamedMethod) -> str | None:
    """What is to be said where gradients that arrive late meet a momentum."""
    if config.optimizer is None or not averages_gradients(config.algorithm.name):
        return None
    momentum = float(getattr(config.optimizer.options, "momentum", 0.0))
    for component in config.compression if momentum else ():
        late = COMPRESSIONS.load(component.name).late_residual
        if late and getattr(component.options, "error_feedback", False):
            return (
                f"{component.name} sends most of a gradient some steps late, and a momentum of {momentum:g} multiplies "
                "that: it trains better without, by as much as all accuracy (docs/algorithms/accuracy.md); write "
                "momentum: 0"
            )
    return None


def _check_verbs(config: NamedMethod) -> Iterator[Finding]:
    """Algorithms and collectives of plugins that were written for bwbench 0.1 would end in the worker, in odd ways."""
    collective = COLLECTIVES.load(config.collective.name)
    old = {
        "algorithm": hasattr(ALGORITHMS.load(config.algorithm.name), "clear_gradients"),
        "collective": "tag" in signature(collective._average).parameters
        or len(signature(collective._flows).parameters) < 2,
    }
    for kind in (kind for kind, is_old in old.items() if is_old):
        name = getattr(config, kind).name
        text = f"{kind} {name!r} has the verbs of bwbench 0.1, which are others now"
        yield Finding((kind,), f"{text}; 'A new method' in docs/architecture.md names them")


def _check_peers(config: NamedMethod) -> Iterator[Finding]:
    if config.nodes > 1:
        if ALGORITHMS.load(config.algorithm.name).role == REFERENCE:
            yield Finding(("nodes",), f"algorithm {config.algorithm.name!r} trains on 1 node, not on {config.nodes}")
        return
    if needy := _needing_peers(config):
        text = f"1 node has no peers, and {' and '.join(needy)} cannot do without; "
        yield Finding(("nodes",), text + "write 'nodes: 2' or more, or 'algorithm: single'")


def _check_used_link(config: CellConfig) -> Iterator[Finding]:
    if config.nodes == 1 and config.link.shaped and not _needing_peers(config):
        text = "1 node uses no network; write 'link: unshaped', or 'algorithm: single', which implies it"
        yield Finding(("link",), text)


def _needing_peers(config: NamedMethod) -> list[str]:
    return [
        f"{registry.kind} {component.name!r}"
        for component, registry in ((config.algorithm, ALGORITHMS), (config.collective, COLLECTIVES))
        if registry.load(component.name).needs_peers
    ]


def _check_collective(config: NamedMethod) -> Iterator[Finding]:
    chain = config.compression
    if (reason := chain_refusal(chain)) is not None:
        yield Finding(("compression",), reason)
        return
    algorithm = ALGORITHMS.load(config.algorithm.name)
    reason = algorithm.accepts(COLLECTIVES.load(config.collective.name))
    if reason is not None:
        text = f"algorithm {config.algorithm.name!r} cannot use collective {config.collective.name!r}: {reason}; "
        yield Finding(("collective",), text + "write 'collective: auto', or 'algorithm: no-communication'")
        return
    for name in (component.name for component in chain):
        if (reason := algorithm.accepts_codec(COMPRESSIONS.load(name))) is not None:
            text = f"algorithm {config.algorithm.name!r} cannot use compression {name!r}: {reason}"
            yield Finding(("compression",), text)
            return
    reason = refusal_of(config.algorithm, config.collective.name, chain)
    if reason is not None:
        fitting = [name for name in COLLECTIVES.names() if name != "none" and _fits(name, config)]
        names = " + ".join(codec.name for codec in chain)
        text = f"collective {config.collective.name!r} cannot carry compression {names!r}: {reason}"
        hint = f"write 'collective: auto' or one of: {', '.join(fitting)}" if fitting else "choose another compression"
        yield Finding(("collective",), f"{text.rstrip('.')}; {hint}")
        return
    codecs = [COMPRESSIONS.load(codec.name) for codec in chain]
    reason = config.collective.build(COLLECTIVES).check(config.nodes, codecs) if config.nodes > 1 else None
    if reason is not None:
        yield Finding(("collective",), f"collective {config.collective.name!r} cannot work here: {reason}")


def _check_algorithm(config: NamedMethod) -> Iterator[Finding]:
    """Whether what it needs is installed, and whether it goes with the optimizer."""
    algorithm = ALGORITHMS.load(config.algorithm.name)
    if (reason := algorithm.missing()) is not None:
        yield Finding(("algorithm",), f"algorithm {config.algorithm.name!r} cannot run: {reason}")
    if (optimizer := config.optimizer) is None:
        return
    known = algorithm.optimizers
    if known and optimizer.name not in known:
        text = f"algorithm {config.algorithm.name!r} has its own update rule, which belongs to {' or '.join(known)}"
        yield Finding(("optimizer",), f"{text}; write 'optimizer: {known[0]}', got {optimizer.name!r}")
    elif (reason := algorithm.accepts_optimizer(optimizer.name, optimizer.options)) is not None:
        yield Finding(("optimizer",), f"algorithm {config.algorithm.name!r} cannot use this optimizer: {reason}")
    for name in (component.name for component in config.compression):
        if (reason := COMPRESSIONS.load(name).accepts_optimizer(optimizer.options)) is not None:
            text = f"optimizer {optimizer.name!r} does not go with compression {name!r}: {reason}"
            yield Finding(("optimizer",), text)


def _check_residual(config: NamedMethod) -> Iterator[Finding]:
    """Residuals of another kind than everybody can keep, and none where the algorithm keeps one."""
    codec = config.compression[0]
    residual = residual_of(getattr(codec.options, "error_feedback", False))
    field = type(codec.options).model_fields.get("error_feedback")
    switched_off = residual is None and field is not None and bool(field.default)
    if switched_off and ALGORITHMS.load(config.algorithm.name).keeps_residual:
        text = f"algorithm {config.algorithm.name!r} always keeps the residual of all that is lost; leave out"
        yield Finding(("compression",), f"{text} 'error_feedback: false' of compression {codec.name!r}")
    if residual is None or residual == PLAIN:
        return
    algorithm, optimizer = config.algorithm.name, config.optimizer
    if COLLECTIVES.load(config.collective.name).wraps_model:
        reason = f"collective {config.collective.name!r} keeps torch's own residual, which has no options"
    elif residual.unit != "update":
        return
    elif not ALGORITHMS.load(algorithm).tells_rate:
        reason = f"algorithm {algorithm!r} sends something else than the gradient of the next update"
    elif optimizer is not None and optimizer.name not in LINEAR_OPTIMIZERS:
        known = " or ".join(LINEAR_OPTIMIZERS)
        reason = f"the update of optimizer {optimizer.name!r} is not linear in the gradient, as that of {known} is"
    else:
        return
    text = f"compression {codec.name!r} cannot keep its residual in this way (error_feedback): {reason}; "
    yield Finding(("compression",), text + "write 'error_feedback: true'")


def _check_flat_step(config: CellConfig) -> Iterator[Finding]:
    if not getattr(config.optimizer.options, "flat", False):
        return
    if COLLECTIVES.load(config.collective.name).wraps_model:
        text = f"a flat step needs gradients in our buckets, and collective {config.collective.name!r} keeps its own"
    elif ALGORITHMS.load(config.algorithm.name).optimizers:
        text = f"a flat step is the optimizer's, and algorithm {config.algorithm.name!r} has its own update rule"
    elif getattr(config.algorithm.options, "bucket_bytes", None) == "auto":
        text = "a flat step keeps its buckets, and 'bucket: auto' changes them after the warm-up"
    else:
        return
    yield Finding(("optimizer",), f"{text}; leave 'flat' out")


def _check_budget(config: CellConfig) -> Iterator[Finding]:
    """Whether a rate that decays, and weights that are averaged at the end, have a training to do it in."""
    optimizer, budget = config.optimizer.options, config.limit.samples
    if (over := getattr(optimizer, "decay_over", None)) is not None:
        warmup = getattr(optimizer, "warmup_samples", None) or 0.0
        what = f"optimizer.decay_over: the rate is down after {over:g} samples"
        if warmup >= over:
            text = f"{what}, and is still rising until {warmup:g} (warmup)"
            yield Finding(("optimizer",), f"{text}; write a shorter warmup, or a larger limit.samples")
        elif not getattr(optimizer, "decay_to", None) and over < budget:
            text = f"{what}, and limit.samples goes on to {budget} with nothing left of it"
            yield Finding(("optimizer",), f"{text}; leave decay_over out, or write decay_to: 0.1")
    begin = getattr(config.weight_average.options, "begin_samples", 0.0)
    if begin >= budget:
        text = f"weight_average.over: averaging begins after {begin:g} samples, and limit.samples is {budget}"
        yield Finding(("weight_average",), f"{text}; leave 'over' out")


def _fits(name: str, config: NamedMethod) -> bool:
    codecs = [COMPRESSIONS.load(codec.name) for codec in config.compression]
    try:
        refusal = refusal_of(config.algorithm, name, config.compression)
        return (refusal or COLLECTIVES.load(name)().check(config.nodes, codecs)) is None
    except Exception:  # a broken package is no suggestion
        return False


def _check_task(config: CellConfig) -> Iterator[Finding]:
    spec = config.dataset.source.build(DATASETS).spec()
    try:
        config.model.build(MODELS).check(spec)
    except ConfigError as error:
        yield Finding(("model",), str(error))
    if spec.task == LANGUAGE_MODELLING and config.dataset.partition.name == "dirichlet":
        text = "partition 'dirichlet' deals by class, and text has none; write 'partition: iid-fixed'"
        yield Finding(("dataset", "partition"), text)


def _check_target(config: CellConfig) -> Iterator[Finding]:
    metrics = DATASETS.load(config.dataset.source.name).metrics
    for index, target in enumerate(config.all_targets):
        metric, value = target.metric, target.value
        loc = ("targets", index, metric) if config.targets else ("target", metric)
        if metric not in metrics:
            text = f"data set {config.dataset.source.name!r} has no metric {metric!r}.{nearest(metric, metrics)}"
            yield Finding(loc, f"{text} It has: {', '.join(metrics)}")
        elif metric == "accuracy" and not 0 < value <= 1:
            hint = f"; write {{accuracy: {value / 100:g}}}" if 1 < value <= 100 else ""
            yield Finding(loc, f"accuracy {value:g} is out of range: more than 0, at most 1{hint}")
        elif value <= 0:
            yield Finding(loc, f"{metric} {value:g} is out of range: it must be more than 0")


def _check_ranges(config: CellConfig) -> Iterator[Finding]:
    means = [one.mean_s for one in config.compute.declared if isinstance(one, SteadyStepTime)]
    for path, time_s in (
        (("compute", "step_time"), max(means, default=None)),
        (("limit", "time"), config.limit.time_s),
    ):
        if time_s is not None and not time_s <= MAX_TIME_S:
            yield Finding(path, f"{DURATION.format(time_s)} is out of range: at most a year")
    if not 1 <= config.evaluate.every_samples <= 1e12:
        yield Finding(("evaluate", "every"), f"{config.evaluate.every_samples:g} samples is out of range: 1 to 1e12")


def _check_step_times(config: CellConfig) -> Iterator[Finding]:
    """Either every node has a step time, or none has; and files lie where the workers are."""
    compute = config.compute
    for node in sorted(node for node in compute.overrides if node >= config.nodes):
        text = f"there is no node {node}; nodes are numbered 0 to {config.nodes - 1}"
        yield Finding(("compute", "overrides", str(node)), f"compute.overrides: {text}")
    bare = [node for node in range(config.nodes) if compute.step_time_of(node) is None]
    if compute.overrides and bare:
        without = f"node {bare[0]} has" if len(bare) == 1 else f"nodes {_in_runs(bare)} have"
        text = f"{without} no step time, and would be as fast as this machine happens to be beside nodes that are not; "
        yield Finding(
            ("compute", "overrides"), f"compute.overrides: {text}write 'step_time' in 'compute' for the others"
        )
    if config.launcher != "local" and any(isinstance(one, StepTimeTrace) for one in compute.declared):
        text = f"the file of a trace lies on this machine, and launcher {config.launcher!r} trains on others; "
        yield Finding(("compute", "step_time"), f"compute.step_time: {text}write {{mean: …, spread: …}}, or a duration")


def _in_runs(numbers: Sequence[int]) -> str:
    """Rising numbers in words: ``0, 2 to 63``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _check_link(config: CellConfig) -> Iterator[Finding]:
    if config.link.shaped and config.nodes > 1:
        for key, text in unknown_nodes(config.link, config.nodes):
            yield Finding(("link", key), f"link.{key}: {text}")
    try:
        choose(config.link, netem_available=True)
    except ConfigError as error:
        yield Finding(("link", "backend"), str(error))


def _check_launcher(config: CellConfig) -> Iterator[Finding]:
    link = config.link
    if config.launcher == "local":
        return
    if link.mtu != DEFAULT_MTU:
        text = f"link.mtu: under launcher {config.launcher!r} it is the hosts' interfaces' own; "
        yield Finding(("link", "mtu"), text + "leave it out (ip link set dev … mtu), or emulate with launcher: local")
    if not link.shaped:
        return
    if config.launcher == "external":
        text = "launcher 'external' takes the network between the hosts as it is, and records what it does; "
        yield Finding(("link",), text + "write 'link: unshaped', or have launcher: ssh shape the hosts' interfaces")
        return
    beyond = {
        "medium": link.medium == "shared",
        "sites": bool(link.sites),
        "trace": any(link.traces),
        "queue": link.is_managed,
        "cross_traffic": bool(link.cross_traffic),
        "handover": link.handover is not None,
        "demand": link.demand is not None,
        "outages": bool(link.outages),
        "loss_in_good": link.loss_in_good > 0,
        "tcp": link.tcp != TcpSettings(),
        "backend": link.backend == "relay",
    }
    for name in (name for name, is_asked in beyond.items() if is_asked):
        text = f"link.{name}: launcher 'ssh' has the hosts' kernels shape their interfaces, which cannot do this; "
        yield Finding(("link", name), text + "leave it out, or emulate the nodes with launcher: local")
    if link.wanders and link.backend != "netem":  # of which ``_check_link`` says it
        text = "link.jitter: launcher 'ssh' has the hosts' kernels shape their interfaces, where no delay can wander; "
        yield Finding(("link", "jitter"), text + "add 'jitter_kind: independent', or emulate with launcher: local")


def needs_workers(config: NamedMethod) -> str | None:
    """Why a method's nodes have to be processes of their own; None where they may be virtual."""
    if (reason := config.algorithm.build(ALGORITHMS).depends_on_link()) is not None:
        return f"algorithm {config.algorithm.name!r}: {reason}"
    if not config.algorithm.build(ALGORITHMS).virtual:
        return f"algorithm {config.algorithm.name!r} does not say that its nodes may share a process ('virtual')"
    if not config.collective.build(COLLECTIVES).runs_virtually():
        return f"collective {config.collective.name!r} does not say that its nodes may share a process ('virtual')"
    on_gpu = isinstance(config, CellConfig) and config.compute.device != "cpu"
    if on_gpu and COLLECTIVES.load(config.collective.name).wraps_model:
        return (
            "on a GPU torch's DDP averages in a thread of the GPU's, and virtual nodes take turns in their own; ring "
            "computes the same mean"
        )
    return None


def _check_virtual(config: CellConfig) -> Iterator[Finding]:
    if not config.compute.virtual:
        if config.nodes > MAX_NODES:
            text = f"nodes: {config.nodes} is out of range: 1 to {MAX_NODES}, or {MOST_VIRTUAL_NODES} with "
            yield Finding(("nodes",), f"{text}'compute: {{virtual: true}}'")
        return
    where, what = ("compute", "virtual"), "compute.virtual: virtual nodes share one process"
    if config.link.shaped:
        yield Finding(where, f"{what}, and there is no link between them; write 'link: unshaped', or leave it out")
    if config.launcher != "local":
        yield Finding(where, f"{what}, which launcher {config.launcher!r} cannot start; leave one of them out")
    if config.compute.declared:
        yield Finding(
            where, f"{what}, whose times say nothing, so that no step_time can be kept; leave one of them out"
        )
    if config.limit.time_s is not None:
        yield Finding(
            where, f"{what}, whose times say nothing, so that limit.time would end it anywhere; limit samples"
        )
    if (reason := needs_workers(config)) is not None:
        yield Finding(where, f"{what}, which this method cannot have: {reason}; exclude it, or leave 'virtual' out")


def _check_device(config: CellConfig) -> Iterator[Finding]:
    if config.compute.device != "cpu" and config.dilation != 1.0:
        text = "compute.device: a GPU computes as fast as it does in slow motion; leave dilation out"
        yield Finding(("compute", "device"), text)


def _check_vector_speed(config: CellConfig) -> Iterator[Finding]:
    speed, most = config.compute.vector_speed, max(1.0, config.dilation * config.shrink)
    if speed > most:
        text = f"compute.vector_speed: {speed:g} times as fast as this machine needs a dilation times a shrink of "
        text += f"{speed:g} or more, and here that is {most:g}; write {most:g}, or 'dilation: auto' or a larger shrink"
        yield Finding(("compute", "vector_speed"), text)


def _check_dilation(config: CellConfig) -> Iterator[Finding]:
    yield from (Finding(("dilation",), text) for text in dilation_refusals(config))


def _check_shapes(config: CellConfig) -> Iterator[Finding]:
    yield from (Finding(loc, text) for loc, text in shape_refusals(config))


_METHOD_CHECKS: tuple[Callable[[NamedMethod], Any], ...] = (
    _check_verbs,
    _check_peers,
    _check_collective,
    _check_algorithm,
    _check_residual,
)
_CHECKS: tuple[Callable[[CellConfig], Any], ...] = (
    _check_used_link,
    _check_flat_step,
    _check_budget,
    _check_task,
    _check_target,
    _check_ranges,
    _check_step_times,
    _check_link,
    _check_launcher,
    _check_virtual,
    _check_device,
    _check_vector_speed,
    _check_dilation,
    _check_shapes,
)
