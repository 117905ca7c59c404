"""Whether what status.json says of a cell can be: against its events or curve, its configuration, and its link.

Every doubt is a sentence that names the field. What is exact in records of bwbench is compared exactly, but for the
rounding of sums; what a machine may blur has a tolerance that stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from bwbench.base.plain_data import mapping_at
from bwbench.base.step_time import SteadyStepTime, recorded_step_times
from bwbench.network.link import Link
from bwbench.records import CellFolder
from bwbench.records.schema import CurvePoint, Evaluation, JsonObject, Status, Step, TrialSummary, Wire
from bwbench.results.analysis.cells import cell_row, dilation_of, is_virtual, setting_of, shrink_of
from bwbench.results.analysis.replicas_apart import PROMISE
from bwbench.results.analysis.targets import meets_all, targets_of
from bwbench.results.analysis.trial import EventsByRank, curve_of, summarise

ROUNDING = 1e-6  # relative
FASTER_THAN_LINK = 1.1  # payload may cross a link this many times as fast as it allows: what a full queue holds
SENT_AGAIN = 1.5  # payload may cross a link so often, in mean: what was lost is sent again
# Of a frame, that is no payload: its own headers, and those of the messages of gloo's that it holds, mostly one.
BESIDE_PAYLOAD_BYTES = 300
OF_CLOCKS = 1.001  # ranks read theirs one after another
OF_A_STEP = 0.9  # steps may be so much shorter than declared: the first and the last one of a round
_NEVER_NEGATIVE = (
    *("time_to_target_s", "censored_at_s", "samples_to_target", "payload_bytes_to_target", "wire_bytes_to_target"),
    *("steps", "samples", "training_clock_s", "steps_clock_s", "evaluation_s", "payload_bytes", "wire_bytes", "wall_s"),
    *("compute_median_s", "step_median_s", "overhead_s"),
)
_FROM_EVENTS = (  # what has meant the same ever since there are records
    *("time_to_target_s", "censored_at_s", "samples_to_target", "payload_bytes_to_target", "final_metric"),
    *("test_metric", "beside_metric", "steps", "samples", "training_clock_s", "evaluation_s", "payload_bytes"),
    "replicas_identical",
)

_SINCE_CHECKSUMS = ("wire_bytes_to_target", "compute_median_s", "step_median_s")  # the same since there are these


def doubts(cell: CellFolder, events: EventsByRank) -> list[str]:
    """What cannot be as it is recorded of a cell that can be read; nothing of one that has not ended.

    Args:
        events: of its last attempt; none of a composed or a published one, whose curve stands for them.
    """
    status = cell.status
    if status is None or status.steps is None:
        return []
    curve = curve_of(events) if events else (cell.digest.curve if cell.digest is not None else ())
    found = [
        *(f"{name} is {value:g}, below 0" for name, value in _numbers(status, _never_negative(cell)) if value < 0),
        *(_against_events(cell, status, events) if events else ()),
        *_of_the_ranks(cell, status, events),
        *_of_the_replicas(cell),
        *_of_the_curve(status, curve, cell.cell.config),
        *_of_the_samples(status, curve, cell.cell.config),
        *_of_the_clock(status, cell),
        *_of_the_link(status, cell),
    ]
    return list(dict.fromkeys(found))


def _numbers(summary: TrialSummary, names: Sequence[str]) -> Iterator[tuple[str, float]]:
    return ((name, value) for name in names if (value := getattr(summary, name)) is not None)


def _differ(one: float, other: float) -> bool:
    return not math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING)


def _against_events(cell: CellFolder, status: Status, events: EventsByRank) -> Iterator[str]:
    """Summed up anew."""
    anew = summarise(events, cell.cell.config, cell.link.wire if cell.link is not None else None)
    for name in (*_FROM_EVENTS, *(_SINCE_CHECKSUMS if status.files_sha256 is not None else ())):
        told, found = getattr(status, name), getattr(anew, name)
        if told is None or found is None:
            differ = told is not found
        else:
            differ = _differ(told, found)
        if differ:
            yield f"{name} is {_said(told)}, its events give {_said(found)}"


def _of_the_ranks(cell: CellFolder, status: Status, events: EventsByRank) -> Iterator[str]:
    """Whether all that should have recorded the attempt of status.json have, each on a clock that its steps fill."""
    attempts = {attempt.name for attempt in cell.attempts}
    if attempts and status.attempt and f"attempt-{status.attempt}" not in attempts:
        yield f"attempt is {status.attempt}, and there is no attempt-{status.attempt} beside {', '.join(attempts)}"
    nodes = cell.cell.config["nodes"]
    if events and status.status == "done" and (len(events) != nodes or max(events) >= len(events)):
        yield f"events are those of rank {', '.join(map(str, sorted(events)))}, and there are {nodes} nodes"
    for rank, of_rank in sorted(events.items()):
        taken_s = clock_s = 0.0
        for event in of_rank:
            if isinstance(event, Step):
                taken_s, clock_s = taken_s + event.duration_s, event.clock_s
                if taken_s > OF_CLOCKS * clock_s:
                    yield f"rank {rank} ends step {event.step} at {clock_s:.6g}, its steps took {taken_s:.6g}"
                    break
            elif isinstance(event, Evaluation) and clock_s > OF_CLOCKS * event.clock_s:
                yield f"rank {rank} is evaluated at {event.clock_s:.6g}, its last step before ended at {clock_s:.6g}"
                break


def _of_the_replicas(cell: CellFolder) -> Iterator[str]:
    """Whether all nodes ended alike, where the method promises it."""
    if cell_row(cell)["replicas_apart"]:
        yield f"replicas_identical is false, and its method promises {PROMISE}: each node trained a model of its own"


def _said(value: float | None) -> str:
    return "missing" if value is None else f"{value:.6g}"


def _of_the_curve(status: Status, curve: Sequence[CurvePoint], config: JsonObject) -> Iterator[str]:
    arrival = next((point for point in curve if point.target_met), None)
    told_s = status.time_to_target_s
    if told_s is not None and arrival is None:
        yield f"time_to_target_s is {told_s:.6g}, and no evaluation meets the target"
    elif told_s is not None and arrival is not None and _differ(told_s, arrival.clock_s):
        yield f"time_to_target_s is {told_s:.6g}, its curve meets the target at {arrival.clock_s:.6g}"
    elif told_s is None and arrival is not None:
        yield f"time_to_target_s is missing, its curve meets the target at {arrival.clock_s:.6g}"
    if arrival is not None and status.samples_to_target != arrival.samples:
        yield f"samples_to_target is {_said(status.samples_to_target)}, its curve says {arrival.samples}"
    if told_s is not None and status.censored_at_s is not None:
        yield f"time_to_target_s is {told_s:.6g}, and censored_at_s {status.censored_at_s:.6g}: one of them at most"
    for before, point in zip(curve, curve[1:], strict=False):
        if point.clock_s < before.clock_s or point.samples < before.samples:
            yield f"its curve goes back in time behind step {before.step}"
    targets = targets_of(config)
    asked = " and ".join(f"{metric} {value:g}" for metric, value in targets)
    for point in curve if targets else ():
        meets = meets_all(config, point.metrics)
        if meets is not None and point.target_met != meets:
            met, reached = "meets" if point.target_met else "does not meet", point.metrics[targets[0][0]] or 0.0
            yield f"its curve {met} the target of {asked} at step {point.step} with {reached:.6g}"
    last = curve[-1].metrics.get(status.metric) if curve and status.metric is not None else None
    if last is not None and status.final_metric is not None and _differ(last, status.final_metric):
        yield f"final_metric is {status.final_metric:.6g}, its curve ends with {last:.6g}"
    test = curve[-1].test.get(status.metric) if curve and status.metric is not None else None
    if test is not None and status.test_metric is not None and _differ(test, status.test_metric):
        yield f"test_metric is {status.test_metric:.6g}, its curve ends with {test:.6g}"


def _of_the_samples(status: Status, curve: Sequence[CurvePoint], config: JsonObject) -> Iterator[str]:
    sizes = [config.get(name, 1) for name in ("nodes", "batch_size", "accumulate")]
    if not all(isinstance(size, int) for size in sizes):
        return
    a_step = math.prod(size for size in sizes if isinstance(size, int))
    counted = [("steps", "samples", status.steps, status.samples)]
    counted += [("its curve's step", "samples", point.step, point.samples) for point in curve]
    for name, of, steps, samples in counted:
        if steps is not None and samples is not None and samples != steps * a_step:
            yield f"{name} is {steps}, {of} {samples}, and a step has {a_step} samples"
            return


def _never_negative(cell: CellFolder) -> Sequence[str]:
    """Virtual nodes take turns: what one waits for while another evaluates counts as training and as evaluation."""
    return [name for name in _NEVER_NEGATIVE if not (name == "overhead_s" and is_virtual(cell))]


def _of_the_clock(status: Status, cell: CellFolder) -> Iterator[str]:
    clock_s, steps = status.training_clock_s, status.steps or 0
    if clock_s is None:
        return
    for name, value in _numbers(status, ("time_to_target_s", "censored_at_s", "steps_clock_s")):
        if value > OF_CLOCKS * clock_s:
            yield f"{name} is {value:.6g}, training_clock_s only {clock_s:.6g}"
    spent_s = clock_s * dilation_of(cell.cell.config) + (status.evaluation_s or 0.0)
    at_a_time = status.composed is None and not is_virtual(cell)
    if at_a_time and status.wall_s is not None and spent_s > status.wall_s + 1.0:
        yield f"training_clock_s and evaluation_s are {spent_s:.6g} together, wall_s only {status.wall_s:.6g}"
    if status.composed is None and None not in (status.wall_s, status.overhead_s):
        parts_s = spent_s + (status.overhead_s or 0.0)
        if _differ(parts_s, status.wall_s or 0.0):
            yield f"wall_s is {status.wall_s:.6g}, its parts (with overhead_s) are {parts_s:.6g}"
    declared = recorded_step_times(mapping_at(cell.cell.config, "compute")).of_nodes(setting_of(cell.cell.config).nodes)
    constant = [one.mean_s for one in declared if isinstance(one, SteadyStepTime) and not one.is_drawn]
    if constant and clock_s < OF_A_STEP * steps * (declared_s := max(constant)):
        yield f"training_clock_s is {clock_s:.6g}, {steps} steps of {declared_s:g} s take longer"


def _of_the_link(status: Status, cell: CellFolder) -> Iterator[str]:
    wire = cell.link.wire if cell.link is not None else None
    if wire is not None and status.composed is None:
        if None not in (wire.payload_bytes, status.payload_bytes) and wire.payload_bytes != status.payload_bytes:
            yield f"payload_bytes is {status.payload_bytes}, link.json says {wire.payload_bytes}"
        frames = None if wire.bytes is None else wire.bytes - (wire.ack_bytes or 0)
        if None not in (frames, status.wire_bytes) and frames != status.wire_bytes:
            yield f"wire_bytes is {status.wire_bytes}, link.json says {frames}"
    environment = cell.environment
    shared = environment is not None and any(len(ranks) > 1 for ranks in environment.ranks_by_interface.values())
    # What ranks of one host say to one another leaves by no interface.
    if (
        not shared
        and status.payload_bytes
        and status.wire_bytes is not None
        and status.wire_bytes < status.payload_bytes
    ):
        yield f"wire_bytes is {status.wire_bytes}, less than the payload_bytes in it, {status.payload_bytes}"
    yield from _of_what_is_not_counted(status, wire)
    asked, told = mapping_at(cell.cell.config, "link"), (cell.link.requested if cell.link is not None else None) or {}
    for key in asked.keys() & told.keys() if status.files_sha256 is not None else ():
        if asked[key] != told[key]:
            yield f"link.json says that {key} {told[key]} was asked, cell.json {asked[key]}"
    capacity_bps = capacity_of(cell.cell.config)
    for seconds, sent in (("time_to_target_s", "payload_bytes_to_target"), ("training_clock_s", "payload_bytes")):
        clock_s, payload = getattr(status, seconds), getattr(status, sent)
        if capacity_bps is None or clock_s is None or not payload:
            continue
        least_s = 8 * payload * shrink_of(cell.cell.config) / capacity_bps
        if least_s > FASTER_THAN_LINK * clock_s:
            yield f"{seconds} is {clock_s:.6g}, its link takes {least_s:.4g} s for {sent}, {payload}"


def _of_what_is_not_counted(status: Status, wire: Wire | None) -> Iterator[str]:
    """Whether the wire carried what no codec says it has sent."""
    if wire is None or status.composed is not None or not (wire.frames and status.payload_bytes and status.wire_bytes):
        return
    frames = wire.frames - (wire.ack_frames or 0)
    if status.wire_bytes > SENT_AGAIN * status.payload_bytes + BESIDE_PAYLOAD_BYTES * frames:
        yield (
            f"wire_bytes is {status.wire_bytes}, far more than payload_bytes, {status.payload_bytes}, and the headers "
            f"of {frames} frames explain: something was sent that the method does not count"
        )


def capacity_of(config: JsonObject) -> float | None:
    """Bits a second that all nodes together can send over the asked link; None where that is not known, or varies."""
    try:
        link = Link.recorded(mapping_at(config, "link"))
        if not link.shaped or link.trace is not None or link.wired:
            return None
        nodes = link.nodes(int(str(config.get("nodes"))))
    except (ValidationError, ValueError):
        return None
    if any(node.up_trace is not None for node in nodes):
        return None
    rates = [node.up_bps for node in nodes]
    return max(rates) if link.medium == "shared" else sum(rates)
