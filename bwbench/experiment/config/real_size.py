"""Real sizes on a small machine: what a model of shapes needs and refuses, how much memory its nodes take together, and
what ``shrink: auto`` stands for.

A cell of the size of BERT-large has gigabytes of gradients on each node. Nothing is learnt, so what nobody looks at has
no memory: parameters that no method sends, and gradients before they are on their way. Where that does not suffice,
``shrink: K`` divides the parameters of every layer, the size of the buckets and the rates of the link by K, and has our
own software take K times as long for each byte, so that times are those of the whole cell.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bwbench.base.errors import ConfigError
from bwbench.base.model_shapes import ELEMENT_BYTES, ModelShapes, Shape, pattern_shape, read_shapes
from bwbench.base.published_models import PUBLISHED, published_model
from bwbench.base.registry import ALGORITHMS, COLLECTIVES, OPTIMIZERS
from bwbench.base.units import MEMORY
from bwbench.experiment.config.cell_config import NO_DATA, PARTITION_LEFT_OUT, CellConfig, parse_dataset
from bwbench.methods.algorithms.algorithm import AbstractAlgorithm, assign
from bwbench.methods.algorithms.communicator import NUM_THREADS, threads_for
from bwbench.methods.algorithms.every_step import CANDIDATES_BYTES
from bwbench.methods.algorithms.periodic import AbstractPeriodic
from bwbench.methods.buffers import LARGEST_KEPT_BYTES, size_of_memory
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.transport import SHARED_ROOM_BYTES
from bwbench.methods.compression.chain import build_codec, nest
from bwbench.network.link.shrunk_link import cannot_shrink

AUTO = "auto"
# Of one worker without a model, measured: Python, torch, and what gloo and our threads take. What all of them share in
# memory (the code of torch's libraries) is counted once.
WORKER_BYTES, SHARED_BYTES = 140e6, 300e6
USABLE_SHARE = 0.9  # of the machine's memory: the rest is the system's, the relay's and this program's
MOST_SHRINK = 1024.0
MALLOC_MARGIN = 1.2  # memory that comes and goes, in several threads, is not given back at once: measured
_DIGITS = 3  # of a number of bytes in messages
PAYLOAD_TOLERANCE = 0.02  # of what a shrunk payload may miss the whole one's share by: headers, rounded shapes


@dataclass(frozen=True)
class MemoryNeed:
    """What the nodes of a cell take of this machine's memory, at most.

    Attributes:
        model_bytes: the gradient in fp32, as shrunk as it is.
        node_bytes: of the node that takes most, the process included.
        total_bytes: of all nodes that this machine runs.
    """

    model_bytes: float
    node_bytes: float
    total_bytes: float


def memory_need(config: CellConfig, model: ModelShapes) -> MemoryNeed:
    """Of a cell with this model, which is whole; pure.

    Args:
        model: ``config.shapes``.
    """
    algorithm = config.algorithm.build(ALGORITHMS)
    collective = config.collective.build(COLLECTIVES)
    shapes = [_shrunk(shape, config.shrink) for shape in model.parameter_shapes]
    tensors = [ELEMENT_BYTES * math.prod(shape) for shape in shapes]
    size = float(sum(tensors))
    as_sent = algorithm.takes_gradients_as_sent(collective)
    held = sum(ELEMENT_BYTES * math.prod(shape) for shape in {pattern_shape(shape) for shape in shapes})
    if not as_sent:
        held += algorithm.copies * size + _of_optimizer(config, algorithm, tensors)
        held += _pooled([*map(size_of_memory, tensors)])
    exchanges = [_exchange_memory(config, collective, buckets, as_sent=as_sent) for buckets in _layouts(config, shapes)]
    most = max(exchanges, key=lambda one: one.kept + one.hub_kept)
    node_bytes = WORKER_BYTES + held + most.kept
    here, hubs = (config.nodes, most.hubs) if config.launcher == "local" else (1, min(1, most.hubs))
    total_bytes = SHARED_BYTES + here * node_bytes + hubs * most.hub_kept
    return MemoryNeed(size, node_bytes + most.hub_kept, total_bytes)


def _shrunk(shape: Shape, factor: float) -> Shape:
    """With the share of elements, in its first dimension, that a shrunk tensor has."""
    return shape if factor == 1 or not shape else (max(1, round(shape[0] / factor)), *shape[1:])


def steps_idly(algorithm: AbstractAlgorithm) -> bool:
    """Whether the update of a model of shapes is left out with this method: nobody would see what it changes."""
    return algorithm.mean_of == "gradients" or not algorithm.sends


def skips_its_warm_up(config: CellConfig) -> bool:
    """Whether steps at the begin that are unlike those after them are left out, since they teach nothing.

    A few steps stand for a long training here, of which a warm-up is a small part. Only of methods whose replicas agree
    in every step: for others the number of a step says when they agree.
    """
    return config.learns_nothing and config.algorithm.build(ALGORITHMS).replicas_equal == "after every step"


def _of_optimizer(config: CellConfig, algorithm: AbstractAlgorithm, tensors: Sequence[int]) -> float:
    """What the optimizer remembers, and what a step of it takes."""
    if steps_idly(algorithm):
        return 0.0
    if "adam" in config.optimizer.name:
        return 2.0 * sum(tensors) + 2.0 * max(tensors)
    return float(sum(tensors)) if _has(config.optimizer, "momentum") else 0.0


def _layouts(config: CellConfig, shapes: Sequence[Shape]) -> Iterator[list[tuple[Shape, ...]]]:
    """The shapes of what is sent together, by bucket; several where the size is chosen later."""
    algorithm = config.algorithm.build(ALGORITHMS)
    if isinstance(algorithm, AbstractPeriodic):
        yield [tuple(algorithm.message_shapes(bucket)) for bucket in algorithm.layout(shapes, config.shrink).buckets]
        return
    asked = getattr(config.algorithm.options, "bucket_bytes", None)
    if COLLECTIVES.load(config.collective.name).wraps_model and nest(config.compression).linear:
        yield [tuple(shapes)]  # torch's PowerSGD
        return
    elements = [math.prod(shape) for shape in shapes]
    for size in (None, *CANDIDATES_BYTES) if asked == "auto" else (asked,):
        buckets = assign(elements, size, config.shrink)
        yield [tuple(shapes[index] for index in bucket) for bucket in buckets]


@dataclass(frozen=True)
class _Exchanges:
    """Of all buckets of a node: ``kept`` of each, ``hub_kept`` more of so many ``hubs``."""

    kept: float
    hubs: int
    hub_kept: float


def _exchange_memory(
    config: CellConfig, collective: AbstractCollective, buckets: Sequence[Sequence[Shape]], *, as_sent: bool
) -> _Exchanges:
    if config.nodes < 2:
        return _Exchanges(0.0, 0, 0.0)
    rooms, hub_rooms, passing, remembered, hub_remembered, hubs = [], [], list[int](), 0.0, 0.0, 0
    for number, shapes in enumerate(buckets):
        codec, elements = build_codec(config.compression), sum(map(math.prod, shapes))
        codec.prepare(shapes, bucket=number)
        found = collective.exchange_memory(config.nodes, elements, codec)
        dense, hubs = ELEMENT_BYTES * elements, found.hubs
        rooms.append((dense, found.kept))
        hub_rooms.append((dense, found.hub_kept))
        passing.append(round(found.passing))
        remembered += found.remembered + codec.kept_copies * dense
        hub_remembered += found.hub_remembered
    # Each thread that sends has room for the largest bucket, into which it writes those that have no memory.
    largest = size_of_memory(max(dense for dense, _ in rooms))
    written = max(1, threads_for(collective, len(rooms))) * largest if as_sent else 0
    kept = _rooms(rooms) + _pooled(passing) + remembered + written
    return _Exchanges(kept, hubs, _rooms(hub_rooms) + hub_remembered)


def _rooms(sizes: Iterable[tuple[int, float]]) -> float:
    """Rooms for buckets of so many bytes: each thread keeps one for all that are small, a large bucket has its own."""
    shared = own = 0.0
    for dense, room in sizes:
        if dense <= SHARED_ROOM_BYTES:
            shared = max(shared, room)
        else:
            own += room
    return MALLOC_MARGIN * (NUM_THREADS * shared + own)


def _pooled(sizes: Sequence[int]) -> float:
    """Memory that is made for one bucket or layer after another, as many at a time as there are threads, out of the
    pool of ``empty_bytes``: it holds on to what was used, by its size, up to a limit.
    """
    kinds = Counter(sizes)
    ever = sum(size * min(NUM_THREADS, count) for size, count in kinds.items())
    at_a_time = sum(sorted(kinds.elements(), reverse=True)[:NUM_THREADS])
    return MALLOC_MARGIN * min(ever, at_a_time + LARGEST_KEPT_BYTES)


def memory_of(config: CellConfig) -> float | None:
    """What the nodes of a cell take of this machine's memory; None of models that learn, which are small."""
    model = config.shapes
    return None if model is None else memory_need(config, model).total_bytes


def memory_words(configs: Iterable[CellConfig]) -> str | None:
    """What cells of real size take of the memory, and by how much they are shrunk; None where there are none."""
    needs = [(need, config) for config in configs if (need := memory_of(config)) is not None]
    if not needs:
        return None
    most, largest = max(needs, key=lambda one: one[0])
    shrunk = sorted({config.shrink for _, config in needs if config.shrink != 1})
    factors = " or ".join(f"{factor:g}" for factor in shrunk)
    divided = f"; shrink {factors}: bytes and rates are divided by it" if shrunk else ""
    who = f"{largest.nodes} nodes with {largest.algorithm.name}"
    return f"memory: up to {MEMORY.show(most, _DIGITS)} ({who}) of {MEMORY.show(machine_bytes(), _DIGITS)}{divided}"


def _has(component: object, option: str) -> bool:
    return bool(getattr(getattr(component, "options", None), option, False))


def machine_bytes() -> float:
    """Memory of this machine, or of the container that this is."""
    total = float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
        return min(total, float(limit)) if limit != "max" else total
    except (OSError, ValueError):
        return total


def with_shapes(config: CellConfig, folder: Path) -> CellConfig:
    """The configuration of a model of shapes with what follows from that: no data, one evaluation of nothing at the
    end, a file's absolute path and checksum. All other configurations as they are.

    Raises ConfigError where the file is no list of shapes.
    """
    if not config.learns_nothing:
        return config
    name = getattr(config.model.options, "of", None)
    if isinstance(name, str) and name not in PUBLISHED and (path := folder / name).is_file():
        path = path.resolve()
        options = config.model.options.model_copy(update={"of": str(path), "sha256": read_shapes(path)[1]})
        config = config.model_copy(update={"model": replace(config.model, options=options)})
    if config.shapes is None:
        return config
    once = config.evaluate.without_test_curve().model_copy(update={"every_samples": float(config.limit.samples)})
    nothing = parse_dataset({"name": NO_DATA, "partition": PARTITION_LEFT_OUT})
    return config.model_copy(update={"dataset": nothing, "evaluate": once})


def auto_shrink(config: CellConfig, model: ModelShapes, usable_bytes: float | None = None) -> tuple[float, str]:
    """The least power of two with which the nodes fit into this machine's memory, and why."""
    usable = usable_bytes or USABLE_SHARE * machine_bytes()
    factor, need = 1.0, memory_need(config.model_copy(update={"shrink": 1.0}), model)
    whole = need
    while need.total_bytes > usable and factor < MOST_SHRINK:
        factor *= 2
        need = memory_need(config.model_copy(update={"shrink": factor}), model)
    needed, there_is = (MEMORY.show(num_bytes, _DIGITS) for num_bytes in (whole.total_bytes, usable))
    if factor == 1:  # in the same words for all methods; what the largest needs, a plan says anyway
        return factor, f"shrink: auto is 1: the nodes fit into the {there_is} of memory that this machine has for them"
    why = f"{config.nodes} nodes need {needed} of memory, and this machine has {there_is} for them"
    return factor, f"shrink: auto is {factor:g}: {why}"


def shape_refusals(config: CellConfig) -> Iterator[tuple[tuple[str, ...], str]]:
    """Why a model of shapes cannot be trained like this, or a model that is none cannot be shrunk; with the key."""
    try:
        model = config.shapes
    except ConfigError as error:
        yield ("model",), str(error)
        return
    if model is None:
        if config.shrink != 1:
            text = "divides parameters and the link's rates, and a model that learns cannot be divided; leave it out, "
            yield ("shrink",), f"shrink: {config.shrink:g} {text}or write 'model: {{shapes: vgg16}}'"
        return
    what = f"model {config.model.name!r} learns nothing"
    for target in config.all_targets:
        key = "targets" if config.targets else "target"
        yield (key,), f"{what}, so that no {target.metric} is ever reached; only times come out: leave {key!r} out"
        break
    if config.compute.virtual:
        yield ("compute", "virtual"), f"{what}, and virtual nodes have no times; leave 'virtual' out"
    elif not config.compute.declared:
        yield ("compute",), f"{what} and computes nothing: declare what a step takes, 'compute: {{step_time: 120 ms}}'"
    if config.compute.device != "cpu":
        text = f"{what} and computes nothing, so that a {config.compute.device} would have nothing to do; leave it out"
        yield ("compute", "device"), text
    if config.weight_average.name != "none":
        yield ("weight_average",), f"{what}, and an average of its weights is nothing to look at; leave it out"
    yield from _optimizer_refusals(config, what)
    yield from _shrink_refusals(config, model)
    need, usable = memory_need(config, model), USABLE_SHARE * machine_bytes()
    if need.total_bytes > usable:
        yield ("nodes",), _too_large(config, model, need, usable)


def _optimizer_refusals(config: CellConfig, what: str) -> Iterator[tuple[tuple[str, ...], str]]:
    name = config.optimizer.name
    if OPTIMIZERS.load(name).takes_its_time:
        text = f"{what}, and a step of {name} takes as long on these processors as they need for the sizes of its "
        text += "matrices, which no device in mind does and 'shrink' does not divide; write 'optimizer: sgd' or 'adamw'"
        if config.algorithm.build(ALGORITHMS).optimizers == (name,):
            text += f", with 'diloco' in place of {config.algorithm.name!r}, which sends the same"
        yield ("optimizer",), text
    elif name != "sgd" and steps_idly(config.algorithm.build(ALGORITHMS)):
        yield ("optimizer",), f"{what}, and no optimizer has anything to do; leave it out"


def _shrink_refusals(config: CellConfig, model: ModelShapes) -> Iterator[tuple[tuple[str, ...], str]]:
    if config.shrink == 1:
        return
    what = f"shrink: {config.shrink:g} divides the link's rates"
    if config.nodes > 1 and (reason := cannot_shrink(config.link, config.shrink)) is not None:
        yield ("shrink",), f"{what}, and {reason}"
    if config.launcher != "local":
        yield ("shrink",), f"{what}, and hosts of their own need not be spared; leave it out"
    if config.dilation * config.shrink < 1:
        text = f"a dilation of {config.dilation:g} takes more off than that; use {1 / config.shrink:g} or more"
        yield ("shrink",), f"{what} and has our software take longer, and {text}"
    try:
        made = model.shrunk(config.shrink)
    except ConfigError as error:
        yield ("shrink",), f"shrink: {error}"
        return
    sizes = []
    for shapes in (model.parameter_shapes, made.parameter_shapes):
        codec = nest(config.compression)
        codec.prepare(shapes)
        sizes.append(sum(codec.payloads(sum(map(math.prod, shapes)))))
    whole, part = sizes
    if abs(part * config.shrink / whole - 1) > PAYLOAD_TOLERANCE:
        yield (
            ("shrink",),
            f"shrink: {config.shrink:g} makes a payload of {part:,} bytes out of {whole:,}, and not a "
            f"{config.shrink:g}th: what {config.compression[0].name} sends does not follow the size; run it whole",
        )


def _too_large(config: CellConfig, model: ModelShapes, need: MemoryNeed, usable: float) -> str:
    fits = []
    factor, _ = auto_shrink(config, model, usable)
    if cannot_shrink(config.link, factor) is None and config.launcher == "local":
        fits.append(f"shrink: {factor:g} ('auto' finds it)")
    most = math.floor((usable - SHARED_BYTES) / need.node_bytes)
    if most >= 2 and config.launcher == "local":
        fits.append(f"{most} nodes")
    smaller = [name for name in PUBLISHED if memory_need(config, published_model(name)).total_bytes <= usable]
    if smaller:
        fits.append(f"the shapes of {', '.join(smaller)}")
    needed, there_is = (MEMORY.show(num_bytes, _DIGITS) for num_bytes in (need.total_bytes, usable))
    return (
        f"nodes: {config.nodes} nodes of {model.name} with {config.algorithm.name} need {needed} of memory, and this "
        f"machine has {there_is} for them; what would fit: {'; '.join(fits) or 'nothing'}"
    )
