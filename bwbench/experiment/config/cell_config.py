"""The resolved configuration of one cell: every key present, every default filled in, quantities checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic_core import InitErrorDetails

from bwbench.base import registry
from bwbench.base.component import Component
from bwbench.base.explain import explain, problem, show
from bwbench.base.model_shapes import ModelShapes
from bwbench.base.plain_data import JsonObject
from bwbench.base.step_time import AnyStepTime, DeclaredStepTime
from bwbench.base.units import PositiveDuration, Samples
from bwbench.experiment.config.component_parsing import ComponentOf, parse_chain, parse_component, refused
from bwbench.experiment.config.hosts import Host
from bwbench.network.link import Link
from bwbench.network.link.variation import NodeNumber

MOST_VIRTUAL_NODES = 256  # more take hours for any model; nodes with addresses are limited by those
MAX_SEED = 2**32 - 1  # numpy's legacy generators take no more
Launcher = Literal["local", "external", "ssh"]
METHOD_KEYS = ("algorithm", "collective", "compression")  # what an arm is made of
# What stands for a component that an experiment leaves out; a model is always named.
LEFT_OUT = {
    "dataset": "digits",
    "algorithm": "every-step",
    "collective": "auto",
    "compression": "none",
    "optimizer": "sgd",
    "weight_average": "none",
}
NO_DATA = "none"  # the data set of a model that learns nothing
PARTITION_LEFT_OUT = "iid-reshuffled"
TEST_LEFT_OUT: Literal["arrivals"] = "arrivals"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


@dataclass(frozen=True)
class DatasetConfig:
    """The data set and how its training part is dealt out to the nodes.

    In YAML and JSON the partition stands among the data set's options: ``{name: digits, partition: iid-fixed}``.
    """

    source: Component
    partition: Component

    def to_json(self) -> JsonObject:
        """The flat form: ``{"name": …, **options, "partition": {"name": …}}``."""
        return {**self.source.to_json(), "partition": self.partition.to_json()}


class NodeCompute(_Section):
    """What is different at one node. The key means what it means in ``ComputeConfig``."""

    step_time: DeclaredStepTime


DeviceKind: TypeAlias = Literal["cpu", "cuda"]


class ComputeConfig(_Section):
    """How much computing a node may do.

    Attributes:
        threads: threads of a worker for torch's operators.
        step_time: every step is padded to this duration before its backward ends in communication, so that nodes
            sharing cores look like devices of a declared speed. None pads nothing.
        overrides: nodes that differ, by their number. Not written out where there are none, so that records from
            before there were any keep their form.
        virtual: all nodes are threads of one process, for trainings without a link of which only what they learn
            matters: the same bits for less, and times that say nothing. No part of the identity, and never written.
        device: what nodes compute on: ``cpu``, or ``cuda``, GPUs that ranks share in turn (rank modulo their number).
            The former is not written out, so that records from before there was a choice keep their identity.
        vector_speed: what our software computes on vectors (encoding, adding, the optimizer's step) takes so many times
            less than on this machine, as on a GPU that one has in mind; 1 is not written out.
    """

    threads: int = Field(1, ge=1, le=1024)
    step_time: DeclaredStepTime | None = None
    overrides: dict[NodeNumber, NodeCompute] = Field(default_factory=dict)
    virtual: bool = Field(False, exclude=True)
    device: DeviceKind = "cpu"
    vector_speed: float = Field(1.0, ge=1.0, le=1e4)

    def step_time_of(self, node: int) -> AnyStepTime | None:
        """What a step of node number ``node`` is declared to take."""
        own = self.overrides.get(node)
        return self.step_time if own is None else own.step_time

    def step_times(self, num_nodes: int) -> tuple[AnyStepTime, ...]:
        """Those of all nodes, in order; empty where none is declared. Either every node has one, or none has."""
        found = [self.step_time_of(node) for node in range(num_nodes)]
        return tuple(one for one in found if one is not None)

    @property
    def declared(self) -> tuple[AnyStepTime, ...]:
        """Everyone's, then those of the nodes that differ."""
        everyones = () if self.step_time is None else (self.step_time,)
        return *everyones, *(own.step_time for own in self.overrides.values())


class EvaluateConfig(_Section):
    """When to evaluate.

    Attributes:
        every_samples: on the validation split, counted over all nodes.
        test: when on the test split as well, which decides nothing: at the ``end``; there and where a target is near
            (``arrivals``); ``always``, at every evaluation. What is default is not written out, so that records from
            before there was a choice keep their identity.
    """

    every_samples: Samples = Field(2000.0, alias="every")
    test: Literal["end", "arrivals", "always"] = TEST_LEFT_OUT

    def without_test_curve(self) -> EvaluateConfig:
        """As often, on the test split no oftener than by default: of runs whose metric nobody compares."""
        return self.model_copy(update={"test": TEST_LEFT_OUT})

    def tested_at_end(self) -> EvaluateConfig:
        """As often, on the test split once: of runs that only validation decides about."""
        return self.model_copy(update={"test": "end"})


class LimitConfig(_Section):
    """When training ends although the target was not reached.

    Attributes:
        samples: over all nodes.
        time_s: of the training clock.
        steps: in place of samples, optimizer steps; what is written out are the samples that they take.
    """

    samples: int = Field(200_000, ge=1, le=10**12)
    time_s: PositiveDuration | None = Field(None, alias="time")
    steps: int | None = Field(None, ge=1, le=10**9, exclude=True)


class TargetConfig(_Section):
    """The metric on the validation split that counts as arrived, e.g. accuracy 0.95 (higher is better) or loss.

    ``{accuracy: 0.95}`` is the form for people, ``{"metric": "accuracy", "value": 0.95}`` the one that is written.
    """

    metric: str
    value: float

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and not {"metric", "value"} & set(value):
            if len(value) != 1:
                text = f"{show(value)} names {len(value)} metrics; a target is one, like {{accuracy: 0.95}}"
                raise refused([problem(text)])
            metric, number = next(iter(value.items()))
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                text = f"{show(number)} is not a number; write it like {{{metric}: 0.95}}"
                raise refused([problem(text, (metric,))])
            return {"metric": metric, "value": number}
        if not isinstance(value, (Mapping, TargetConfig)):
            raise refused([problem(f"{show(value)} is not a target; write it like {{accuracy: 0.95}}")])
        return value


def parse_targets(value: object) -> tuple[TargetConfig, ...]:
    """Several targets, easy ones and hard ones, of one metric or of several, as they are written; () for none.

    Raises ValidationError whose locations are those of the input.
    """
    form = "[{accuracy: 0.80}, {accuracy: 0.87}]"
    if value is None or value == () or isinstance(value, tuple):
        return value or ()
    if not isinstance(value, list):
        raise refused([problem(f"{show(value)} is not a list of targets; write it like {form}")])
    if len(value) < 2:
        text = f"{show(value)} has {len(value)} of the two or more targets that make a list; "
        raise refused([problem(text + f"write it like {form}, or a single one as 'target: {{accuracy: 0.87}}'")])
    found: list[TargetConfig] = []
    errors: list[InitErrorDetails] = []
    for index, item in enumerate(value):
        try:
            target = TargetConfig.model_validate(item, strict=True)
        except ValidationError as error:
            errors += [problem(text, (index, *loc)) for loc, text in explain(error, TargetConfig)]
            continue
        if target in found:
            errors.append(problem(f"{target.metric} {target.value:g} stands twice; keep one", (index,)))
        found.append(target)
    if errors:
        raise refused(errors)
    return tuple(found)


def from_easy_to_hard(targets: Sequence[TargetConfig]) -> tuple[TargetConfig, ...]:
    """By metric as they come, each from its easiest to its hardest, so that their order makes no other cell."""
    metrics = list(dict.fromkeys(target.metric for target in targets))

    def place(target: TargetConfig) -> tuple[int, float]:
        return metrics.index(target.metric), target.value * (-1.0 if target.metric == "loss" else 1.0)

    return tuple(sorted(targets, key=place))


def hardest(targets: Sequence[TargetConfig]) -> TargetConfig:
    """Of the metric that comes first: what stands where one target alone is spoken of."""
    return [one for one in from_easy_to_hard(targets) if one.metric == targets[0].metric][-1]


def parse_dataset(value: object) -> DatasetConfig:
    """A data set in any spelling of a component, with an optional ``partition`` beside or among its options."""
    if isinstance(value, DatasetConfig):
        return value
    partition: object = PARTITION_LEFT_OUT
    where: tuple[int | str, ...] = ("partition",)
    if isinstance(value, Mapping):
        value = dict(value)
        if "partition" in value:
            partition = value.pop("partition")
        elif len(value) == 1 and "name" not in value:
            name, options = next(iter(value.items()))
            if isinstance(options, Mapping) and "partition" in options:
                partition, where = options["partition"], (name, "partition")
                value = {name: {key: option for key, option in options.items() if key != "partition"}}
        value = value or LEFT_OUT["dataset"]
    parts: list[Component] = []
    errors: list[InitErrorDetails] = []
    for part, known, prefix in ((value, registry.DATASETS, ()), (partition, registry.PARTITIONS, where)):
        try:
            parts.append(parse_component(part, known))
        except ValidationError as error:
            errors += [problem(detail["msg"], (*prefix, *detail["loc"])) for detail in error.errors()]
    if errors:
        raise refused(errors)
    return DatasetConfig(*parts)


Chain = Annotated[
    tuple[Component, ...],
    PlainValidator(parse_chain),
    PlainSerializer(lambda chain: [component.to_json() for component in chain], return_type=list[dict[str, object]]),
    WithJsonSchema({"title": "compression"}),
]
_Dataset = Annotated[
    DatasetConfig,
    PlainValidator(parse_dataset),
    PlainSerializer(DatasetConfig.to_json, return_type=dict[str, object]),
    WithJsonSchema({"title": "dataset"}),
]


_Targets = Annotated[
    tuple[TargetConfig, ...],
    PlainValidator(parse_targets),
    PlainSerializer(lambda targets: [target.model_dump() for target in targets], return_type=list[dict[str, object]]),
    WithJsonSchema({"title": "targets"}),
]


class CellConfig(_Section):
    """Everything a worker needs to know, resolved: no presets, no ``auto``, no matrix.

    Attributes:
        nodes: world size.
        batch_size: samples of one node in one micro-step.
        accumulate: micro-steps of one optimizer step.
        compression: chain of codecs, applied left to right; one element ``none`` sends values as they are.
        weight_average: what of a replica's past is evaluated beside it; ``none`` is not written out.
        target: the one that tables show by themselves; of several ``hardest``.
        targets: all of them where there are several, from easy to hard; else empty, and not written out.
        stop: ``target`` ends at the first evaluation that meets all targets, ``limit`` goes on to the limit.
        seed: of this repeat.
        dilation: seconds of the machine to one of the training (``config/cell_dilation.py``); 1, the machine's own
            time, is not written out.
        shrink: of a model of which only the shapes are real, parameters and the link's rates are divided by it, so that
            times stay and memory shrinks (``config/real_size.py``); 1 is not written out.
        launcher: ``local`` starts the workers in namespaces of this machine, ``ssh`` on ``hosts``, ``external`` leaves
            that to torchrun or Slurm on any machines. What is local is not written out, so that records from before
            there was a choice keep their identity.
        hosts: where ``ssh`` starts the workers, in the order of the ranks; no part of the identity, and never written.
        plugins: absolute paths of Python files that register components; whoever validates has imported them.
    """

    nodes: int = Field(ge=1, le=MOST_VIRTUAL_NODES)
    link: Link
    model: Annotated[Component, ComponentOf(registry.MODELS)]
    dataset: _Dataset
    batch_size: int = Field(32, ge=1, le=10**6)
    accumulate: int = Field(1, ge=1, le=10**6)
    algorithm: Annotated[Component, ComponentOf(registry.ALGORITHMS)]
    collective: Annotated[Component, ComponentOf(registry.COLLECTIVES)]
    compression: Chain
    optimizer: Annotated[Component, ComponentOf(registry.OPTIMIZERS)]
    weight_average: Annotated[Component, ComponentOf(registry.WEIGHT_AVERAGES)] = Component("none")
    compute: ComputeConfig = ComputeConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    target: TargetConfig | None = None
    targets: _Targets = ()
    stop: Literal["target", "limit"] = "target"
    limit: LimitConfig = LimitConfig()
    seed: int = Field(0, ge=0, le=MAX_SEED)
    dilation: Annotated[float, Field(gt=0.0, le=1e6)] = 1.0
    shrink: Annotated[float, Field(ge=1.0, le=1e6)] = 1.0
    launcher: Launcher = "local"
    hosts: tuple[Host, ...] = Field((), exclude=True)
    plugins: Annotated[
        tuple[str, ...], BeforeValidator(lambda paths: tuple(paths) if isinstance(paths, list) else paths)
    ] = ()

    @model_serializer(mode="wrap")
    def _without_what_was_left_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        content: dict[str, object] = handler(self)
        if content.get("launcher") == "local":
            del content["launcher"]
        for key in ("dilation", "shrink"):
            if content.get(key) == 1.0:
                del content[key]
        if not content.get("targets"):
            content.pop("targets", None)
        if self.weight_average.name == LEFT_OUT["weight_average"]:
            content.pop("weight_average", None)
        if isinstance(evaluate := content.get("evaluate"), dict) and evaluate.get("test") == TEST_LEFT_OUT:
            content["evaluate"] = {key: value for key, value in evaluate.items() if key != "test"}
        if isinstance(compute := content.get("compute"), dict):
            usual = {"overrides": {}, "device": "cpu", "vector_speed": 1.0}
            left_out = [key for key, value in usual.items() if compute.get(key) == value]
            content["compute"] = {key: value for key, value in compute.items() if key not in left_out}
        return content

    @property
    def learns_nothing(self) -> bool:
        """Whether only the shapes of the model are real."""
        return bool(getattr(registry.MODELS.load(self.model.name), "only_shapes", False))

    @property
    def shapes(self) -> ModelShapes | None:
        """The layers of a model that learns nothing, as they are published; None where there is something to learn.

        Raises ConfigError where the file that has them is not as it was.
        """
        if not self.learns_nothing:
            return None
        found: ModelShapes | None = self.model.build(registry.MODELS).shapes()
        return found

    @property
    def link_as_made(self) -> Link:
        """The link that is made, in the training's time: the one that was asked, its rates divided by ``shrink``."""
        return self.link.shrunk(self.shrink)

    @property
    def all_targets(self) -> tuple[TargetConfig, ...]:
        """One, several or none."""
        return self.targets or (() if self.target is None else (self.target,))

    @property
    def global_batch(self) -> int:
        """Samples of one optimizer step, over all nodes and micro-steps."""
        return self.batch_size * self.accumulate * self.nodes
