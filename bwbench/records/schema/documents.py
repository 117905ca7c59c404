"""The records of a cell that are one JSON document each, of its plan, and of what is published of an experiment."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from bwbench.base.plain_data import JsonObject, has_more_values, list_at, mapping_at
from bwbench.base.step_time import recorded_step_times
from bwbench.base.units import BANDWIDTH, DURATION, SAMPLES
from bwbench.records.schema.composed_from import ComposedFrom, Kind
from bwbench.records.schema.events import Ending
from bwbench.records.schema.link_json import LinkRecord
from bwbench.records.schema.record import Flag, FolderName, Number, Record, Text, Versioned, Whole

PARTS = ("compute_s", "pad_s", "codec_s", "peers_s", "link_s", "exposed_s", "optimizer_s", "other_s")
ADDITIVITY_TOLERANCE = 0.02  # the parts add up to the step within this share, or the ledger is not to be trusted


class CellTopology(Record):
    """Who averages with whom; see ``methods.roles.Topology``."""

    name: Text
    averaging: Text
    place: Text


class CellRecord(Versioned):
    """``cell.json``: the planned cell.

    Attributes:
        id: 10 hex digits out of the configuration; slug: readable name, not unique without the id.
        experiment: name of the experiment.
        arm: display name of the method; repeat: 0-based.
        pilot: repeats whose spread has said how many there are; None where their number was fixed beforehand.
        config: the resolved configuration, read leniently: an analysis must not need the plugins that were configured.
        role, kinship: what the arm is in a comparison, and which arms compute the same mean; None where it was not
            recorded.
        topology: who averages with whom; None where nobody does, absent where it was not recorded.
        replicas_equal: when all nodes hold the same bits, as the method declares: ``after every step``, ``after a
            round``, ``never``; None where it was not recorded.
    """

    id: Text
    slug: FolderName
    experiment: FolderName
    arm: Text
    repeat: Whole = 0
    pilot: Whole | None = None
    config: JsonObject
    role: Text | None = None
    kinship: Text | None = None
    topology: CellTopology | None = None
    replicas_equal: Text | None = None

    @field_validator("config")
    @classmethod
    def _readable(cls, config: JsonObject) -> JsonObject:
        """What analyses read of a configuration has the form that they rely on; raises ValueError."""
        if has_more_values(config, MOST_VALUES):
            raise ValueError(f"more than {MOST_VALUES} values, which no experiment asks for")
        for name in ("link", "limit", "compute", "evaluate", "target", "optimizer", "weight_average"):
            if not isinstance(config.get(name) or {}, dict):
                raise ValueError(f"{name} is no mapping")
        for name, least in _NUMBERS.items():
            value = config.get(name, least)
            if type(value) is not int or not least <= value < 2**63:
                raise ValueError(f"{name} is no whole number of {least} or more")
        if not isinstance(config.get("compression") or [], list):
            raise ValueError("compression is no list")
        if "nodes" not in config:
            raise ValueError("nodes is missing")
        for (section, name), dimension in _QUANTITIES.items():
            text = mapping_at(config, section).get(name)
            if text is not None and not _is_quantity(dimension.name, str(text)):
                raise ValueError(f"{section}.{name} is {text!r}, which is no {dimension.name}")
        recorded_step_times(mapping_at(config, "compute"))
        if not isinstance(config.get("targets") or [], list):
            raise ValueError("targets is no list")
        for target in filter(None, (mapping_at(config, "target"), *list_at(config, "targets"))):
            if not isinstance(target, dict):
                raise ValueError("targets has something else than targets")
            value = target.get("value") if "metric" in target else next(iter(target.values()))
            if type(value) is not int and not (type(value) is float and math.isfinite(value)):
                raise ValueError("target has no number as its value")
        return config


MOST_VALUES = 20_000  # a link with overrides of 250 nodes has some thousand; figures look at every one of them
_NUMBERS = {"nodes": 1, "batch_size": 0, "accumulate": 1, "seed": 0}  # and the least that they may be


_QUANTITIES = {("link", "bandwidth"): BANDWIDTH, ("link", "latency"): DURATION, ("evaluate", "every"): SAMPLES}
_DIMENSIONS = {dimension.name: dimension for dimension in _QUANTITIES.values()}


@lru_cache(maxsize=1024)
def _is_quantity(dimension: str, text: str) -> bool:
    """Thousands of cells have the same few."""
    try:
        _DIMENSIONS[dimension].parse(text)
    except ValueError:
        return False
    return True


class Resumed(Record):
    """The checkpoint that an attempt went on from: where training was, and the attempt that took it."""

    attempt: Whole
    step: Whole
    clock_s: Number


class _Ended(Versioned):
    """How an attempt at a cell ended.

    Attributes:
        reason: why; of a cell that is done what ended training: ``target``, ``samples`` or ``time``.
        attempt: its number.
        resumed_from: None where it began at step 0; resume_refused: why a checkpoint that was there was not used.
        wall_s: from opening the link to closing it, with what earlier attempts took up to the checkpoint.
        overhead_s: of that neither training nor evaluation.
    """

    id: Text
    slug: Text
    status: Ending
    reason: Text | None = None
    attempt: Whole | None = None
    resumed_from: Resumed | None = None
    resume_refused: Text | None = None
    wall_s: Number | None = None
    overhead_s: Number | None = None


class TargetArrival(Record):
    """When a run reached one of its targets; ``results.analysis.arrival`` says how that is read from its curve.

    Attributes:
        metric, value: the target.
        kind: ``fit``; ``first crossing``, where training ended there, or too soon behind it to tell more; ``censored``
            where the budget was spent, or too much of it; ``unknown`` where it ended before.
        time_s, samples: training clock, and samples over all nodes, at the arrival; None where there is none.
        censored_at_s: training clock up to which it is known not to have arrived.
        first_crossing_s, first_crossing_samples: the first evaluation that met it, whatever the kind.
        test_metric: on the test split at the arrival: straight between the evaluations before and behind it; None
            where it was not looked at there.
    """

    metric: Text
    value: Number
    kind: Text
    time_s: Number | None = None
    samples: Whole | None = None
    censored_at_s: Number | None = None
    first_crossing_s: Number | None = None
    first_crossing_samples: Whole | None = None
    test_metric: Number | None = None


class TrialSummary(Record):
    """The measured part of status.json; None stands for "does not apply" or "was not recorded".

    Attributes:
        metric: the metric that the target names; without a target, accuracy or loss.
        time_to_target_s: training-clock seconds, largest over the ranks, at the first validation evaluation that meets
            the target; of several, all of them.
        censored_at_s: training-clock seconds at the end of a run that ended without meeting its target.
        samples_to_target: samples over all nodes until then; likewise payload_bytes_to_target, summed over the ranks.
        wire_bytes_to_target: wire bytes of the whole run, scaled by the payload's share until then.
        final_metric: of the last validation evaluation; test_metric: on the test split, where training ended.
        weights: whose metrics these are where weights are averaged, ``averaged`` or ``trained``; else None.
        beside_metric: of the last validation evaluation, the metric of the others of the two.
        steps: optimizer steps; samples: over all nodes; training_clock_s, evaluation_s: largest over the ranks.
        steps_clock_s: the training clock at the end of the last step, of a method whose steps wait for nobody: without
            the wait for what was under way then. Largest over the ranks; None of all other methods.
        payload_bytes: sent by all ranks together; wire_bytes: counted where shaping happens, with all headers, without
            acknowledgements.
        replicas_identical: whether all ranks ended with bit-equal parameters.
        ledger_error: how far the parts of the steps are from adding up, as a share; worst rank.
        compute_median_s, step_median_s: over steps and ranks, to compare cells by.
        arrivals: when each target was reached, from easy to hard; empty where it was not recorded.
    """

    metric: Text | None = None
    time_to_target_s: Number | None = None
    censored_at_s: Number | None = None
    samples_to_target: Whole | None = None
    payload_bytes_to_target: Whole | None = None
    wire_bytes_to_target: Whole | None = None
    final_metric: Number | None = None
    test_metric: Number | None = None
    weights: Text | None = None
    beside_metric: Number | None = None
    steps: Whole | None = None
    samples: Whole | None = None
    training_clock_s: Number | None = None
    steps_clock_s: Number | None = None
    evaluation_s: Number | None = None
    payload_bytes: Whole | None = None
    wire_bytes: Whole | None = None
    replicas_identical: Flag | None = None
    ledger_error: Number | None = None
    compute_median_s: Number | None = None
    step_median_s: Number | None = None
    arrivals: tuple[TargetArrival, ...] = ()


class Status(TrialSummary, _Ended):
    """``status.json``: how a cell ended.

    Attributes:
        composed: absent where the cell ran whole.
        undone_part: ``ID/attempt-N`` of the convergence or timing run that did not end as it should, where the cell
            cannot be composed for that; else absent.
        files_sha256: checksums of the other files of the cell and of all its attempts, by their path in its folder, as
            they were when it ended; None where they were not recorded.
    """

    composed: ComposedFrom | None = None
    undone_part: Text | None = None
    files_sha256: dict[Text, Text] | None = None

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> Any:
        """Of a composed cell ``wall_s`` comes last, which holds the making of the others."""
        content: JsonObject = write(self)
        if "resumed_from" not in content and "wall_s" in content:
            content["wall_s"] = content.pop("wall_s")
        return content


def _outcomes() -> tuple[str, ...]:
    """What tables say of how a cell came out: the summary without what is there to judge the trial by."""
    about_the_trial = (
        *("metric", "weights", "beside_metric"),
        *("ledger_error", "compute_median_s", "step_median_s", "arrivals"),
    )
    names = [name for name in TrialSummary.model_fields if name not in about_the_trial]
    behind = names.index("evaluation_s") + 1
    return (*names[:behind], "wall_s", "overhead_s", *names[behind:])


OUTCOMES = _outcomes()


class GitState(Record):
    """Commit of the program; dirty: tracked files of the package were changed."""

    commit: Text | None = None
    dirty: Flag | None = None


class _OfHost(Record):
    """Of one of several hosts; it comes first."""

    address: Text | None = None
    interface: Text | None = None


class Others(Record):
    """What else was at work on the machine while an attempt ran.

    Attributes:
        trained: other bwbench processes that trained meanwhile, in words.
        cores: processors that other programs took, in mean; None where that is not known.
        pressure: share of the time in which some process waited for a processor, this attempt's own included; None
            where the kernel does not tell.
    """

    trained: tuple[Text, ...] = ()
    cores: Number | None = None
    pressure: Number | None = None


class Environment(Versioned, _OfHost):
    """``environment.json`` of an attempt: what it ran on; of one on several hosts those of rank 0, and all of them.

    Attributes:
        address, interface: of one of several hosts, towards the others.
        time_unix_s: start of the attempt.
        host, boot_id, kernel, machine, cpu, cores, memory_bytes: of the machine; load_1min: at the start.
        python, bwbench, packages: versions.
        git: None outside a checkout.
        source_sha256: of the package's Python files; plugins_sha256: of each plugin file, by its path, and of each
            installed package that has a component of the cell, by its name.
        root: whether it ran as root.
        compiled_codecs: whether codecs ran compiled, as far as they are; None where an older version did not say.
        tcp: of one of several hosts, its TCP settings.
        hosts: one a rank; None on one machine.
        others: of an attempt on one machine that has ended.
        virtual: whether all nodes were threads of one process, whose times say nothing; absent where they were not.
    """

    name: Text | None = None
    time_unix_s: Number | None = None
    host: Text | None = None
    boot_id: Text | None = None
    kernel: Text | None = None
    machine: Text | None = None
    cpu: Text | None = None
    cores: Whole | None = None
    memory_bytes: Whole | None = None
    load_1min: Number | None = None
    python: Text | None = None
    bwbench: Text | None = None
    packages: dict[Text, Text] = {}
    git: GitState | None = None
    source_sha256: Text | None = None
    plugins_sha256: dict[Text, Text | None] = {}
    root: Flag | None = None
    compiled_codecs: Flag | None = None
    tcp: dict[Text, Text] = {}
    hosts: tuple[Environment, ...] | None = None
    others: Others | None = None
    virtual: Flag = False

    @property
    def ranks_by_interface(self) -> dict[tuple[str, str], list[int]]:
        """Across several hosts: which ranks send by an interface, by its address and its name; empty on one machine."""
        found: dict[tuple[str, str], list[int]] = {}
        for rank, host in enumerate(self.hosts or ()):
            found.setdefault((host.address or "", host.interface or ""), []).append(rank)
        return found


def _all_parts(times_s: dict[str, float]) -> dict[str, float]:
    if missing := [part for part in PARTS if part not in times_s]:
        raise ValueError(f"{', '.join(missing)} missing")
    return times_s


PartTimes = Annotated[dict[Text, Number], AfterValidator(_all_parts)]


class LedgerSummary(Record):
    """A trial's steps in one line.

    Attributes:
        mean_s: mean of each part over all steps and ranks; they add up to the mean step. Times the number of steps
            that is the training clock, but for the waiting at evaluations (``waited_s`` of their events). A method
            that communicates only now and then is right in them alone.
        median_s: median of each part over all steps and ranks; parts of a typical step, which need not add up.
        step_mean_s, step_median_s: of the whole step.
        num_steps, num_ranks: what was summarised.
        peers_known: whether waiting could be split; if not, ``peers_reason`` says why.
        estimated: the split between computing and waiting is an estimate (it hides inside torch's own DDP).
        additivity_error: see ``results.analysis.trial.additivity_error``.
        clock_uncertainty_s: where the ranks ran on several hosts, by how much the split may be off: their clocks were
            compared to within that. None on one machine.
        slowest_rank: that takes longest until its gradients are ready, and ``slowest_ratio``: how many times as long as
            the fastest; None with one rank, or where it was not recorded.
    """

    mean_s: PartTimes
    median_s: PartTimes
    step_mean_s: Number
    step_median_s: Number
    num_steps: Whole
    num_ranks: Whole
    peers_known: Flag
    peers_reason: Text | None = None
    estimated: Flag = False
    additivity_error: Number = 0.0
    slowest_rank: Whole | None = None
    slowest_ratio: Number | None = None
    clock_uncertainty_s: Number | None = None

    @property
    def adds_up(self) -> bool:
        """Whether the parts add up to the step within 2 %."""
        return self.additivity_error <= ADDITIVITY_TOLERANCE


ON_TEST = "test_"  # before the name of a metric, in JSON
BESIDE = "beside_"  # likewise, of the weights that do not count where weights are averaged


class CurvePoint(Record):
    """A validation evaluation of a whole attempt.

    Attributes:
        step, samples: trained by then; samples over all nodes.
        metrics: mean over the ranks by name; in JSON each is a field of its own, behind ``step``.
        test: the same on the test split, in JSON as ``test_accuracy``; None where it was not looked at there, empty
            where it never was.
        beside: validation metrics of the weights that do not count where weights are averaged, in JSON as
            ``beside_accuracy``; elsewhere empty.
        clock_s: training clock, largest over the ranks.
        target_met: whether the metrics meet the target; of several all of them.
        payload_bytes: that all ranks sent until then.
    """

    step: Whole
    metrics: dict[Text, Number | None] = {}
    test: dict[Text, Number | None] = {}
    beside: dict[Text, Number | None] = {}
    samples: Whole
    clock_s: Number
    target_met: Flag = False
    payload_bytes: Whole | None = None

    @model_validator(mode="before")
    @classmethod
    def _metrics_apart(cls, content: Any) -> Any:
        if not isinstance(content, dict) or "metrics" in content:
            return content
        found: JsonObject = {}
        metrics, test, beside = found["metrics"], found["test"], found["beside"] = {}, {}, {}
        for key, value in content.items():
            if key in _OF_A_POINT:
                found.setdefault(key, value)
            elif key.startswith(ON_TEST):
                test[key.removeprefix(ON_TEST)] = value
            elif key.startswith(BESIDE):
                beside[key.removeprefix(BESIDE)] = value
            else:
                metrics[key] = value
        return found

    def to_json(self) -> JsonObject:
        """As it is written, in less than half the time of ``model_dump``."""
        return self._flat({name: getattr(self, name) for name in _OF_A_POINT if name in self.model_fields_set})

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> Any:
        return self._flat(write(self))

    def _flat(self, content: JsonObject) -> JsonObject:
        """A field each metric."""
        for name in ("metrics", "test", "beside"):
            content.pop(name, None)
        test = {f"{ON_TEST}{name}": value for name, value in self.test.items()}
        beside = {f"{BESIDE}{name}": value for name, value in self.beside.items()}
        return {"step": content.pop("step"), **self.metrics, **test, **beside, **content}


_OF_A_POINT = tuple(CurvePoint.model_fields)  # looked up once: there are millions of points


class Digest(Record):
    """What tables need of a cell whose events are not there.

    Attributes:
        curve: its validation evaluations, on its own clock.
        ledger: of its steps, of a composed cell of the timed ones; None where none was recorded.
        gradient_bytes: of the model.
    """

    curve: tuple[CurvePoint, ...] = ()
    ledger: LedgerSummary | None = None
    gradient_bytes: Whole | None = None

    @field_validator("curve", mode="before")
    @classmethod
    def _none_is_empty(cls, curve: Any) -> Any:
        return () if curve is None else curve


class _OfCell(Versioned):
    """The id of the cell that a record is of."""

    id: Text


class _ComposedTimes(Record):
    """When a composed run ends, and why; as in status.json.

    Attributes:
        reason: what ended it: ``target``, ``samples`` or ``time``.
        kinds: what the time consists of.
    """

    time_to_target_s: Number | None = None
    censored_at_s: Number | None = None
    training_clock_s: Number | None = None
    reason: Text | None = None
    kinds: tuple[Kind, ...] = ()


class Composed(Digest, _ComposedTimes, ComposedFrom, _OfCell):
    """``composed.json``: of a composed cell, or of one that ran whole and was composed for comparison.

    Attributes:
        link, environment: of the first timing run; of a published cell that ran whole absent.
    """

    link: LinkRecord | None = None
    environment: Environment | None = None
