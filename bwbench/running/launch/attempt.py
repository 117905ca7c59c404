"""One attempt at a cell: what it goes on from, how its workers ended, and what link.json and status.json say of it."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bwbench.base.errors import ConfigError, RecordError
from bwbench.base.step_time import AnyStepTime, SteadyStepTime
from bwbench.experiment.config import CellConfig
from bwbench.experiment.config.step_trace import asked_of
from bwbench.experiment.plan.cell import Cell
from bwbench.methods.roles import HEADROOM
from bwbench.network.link import Link
from bwbench.network.namespaces.backend import lateness_between
from bwbench.network.network import Network
from bwbench.network.probe.verification import verify
from bwbench.records import CellFolder, read_record, write_record
from bwbench.records.checkpoint import Checkpoint, delete_checkpoints, has_checkpoint
from bwbench.records.files import read_tail
from bwbench.records.schema import (
    Applied,
    Carried,
    Emulator,
    End,
    Ending,
    Json,
    JsonObject,
    Lateness,
    LinkRecord,
    Measurement,
    Resumed,
    Status,
    Step,
    TrialSummary,
    Wire,
    WireTraffic,
)
from bwbench.results.analysis.trial import EventsByRank, summarise

# A cell that ended like this may be run again, and then need not begin at step 0. Others are done, or would end alike.
KEPT_AFTER = ("interrupted", "timeout", "failed")
Moment = Literal["achieved_before", "achieved_during", "achieved_after"]
VERIFY_TRIES = 3  # a probe disturbed by something else on the machine is repeated; how often is recorded
# p99 of lateness beyond which frames no longer leave when the link says so, in emulated time: that is where it counts.
# In slow motion the machine may be later by as much as everything else is, and has to be earlier where emulated time
# runs faster than its own.
LATE_EMULATOR_S = 0.02
MOST_LOST_SHARE = 1e-3  # of all frames: what the machine itself may lose beside the loss that was asked
# Sent by a node on the unshaped control path while the training clock runs, at most: in a step the question whether
# anybody has asked to stop, which takes 100 B with TCP's acknowledgements, and the barrier of an evaluation, 200 B for
# each doubling of the nodes; and some more where training begins and ends. What is beyond that went round the link.
MOST_CONTROL_BYTES_A_STEP, MOST_CONTROL_BYTES_BESIDE = 1_000, 20_000
MOST_LATE_SHARE = 0.05  # of steps whose times are drawn or follow a trace: those that compute for longer than asked
LOG_TAIL_LINES, LOG_TAIL_BYTES = 15, 16384
FRAMES_FOR_A_P99 = 1000  # of lateness: where there are enough of them for a 99th percentile to mean something


@dataclass(frozen=True)
class Resumption:
    """The part of a cell that earlier attempts have done; nothing by default.

    Attributes:
        checkpoint: to go on from; None begins at step 0.
        refused: why a checkpoint that is there is not gone on from.
        began_mono_s: when this attempt began.
    """

    checkpoint: Checkpoint | None = None
    refused: str | None = None
    began_mono_s: float = field(default_factory=time.monotonic)

    @property
    def words(self) -> str | None:
        """What to tell the user; None where there was no checkpoint."""
        if self.checkpoint is not None:
            return f"going on from step {self.checkpoint.step} of attempt {self.checkpoint.attempt}"
        return f"beginning at step 0: {self.refused}" if self.refused else None

    @property
    def environment(self) -> dict[str, str]:
        """Variables that tell a worker."""
        return {"BWBENCH_CHECKPOINT_DIR": str(self.checkpoint.folder) if self.checkpoint else ""}

    @property
    def wall_s(self) -> float:
        """Seconds of this attempt so far and of the earlier ones up to the checkpoint."""
        return self.carried.wall_s + time.monotonic() - self.began_mono_s

    def traffic(self, since: WireTraffic) -> WireTraffic:
        """All traffic of the training: ``since`` the start of this attempt, and what was counted before."""
        before = self.carried.wire
        return since if before is None else since.plus(before)

    @property
    def resumed_from(self) -> Resumed | None:
        """As status.json has it."""
        found = self.checkpoint
        return None if found is None else Resumed(attempt=found.attempt, step=found.step, clock_s=found.clock_s)

    def tidy(self, attempt: Path, status: str) -> None:
        """Delete checkpoints that nobody will go on from, once ``attempt`` has ended with ``status``.

        One from which training has failed before it got to the next is not tried twice.
        """
        stuck = status == "failed" and self.checkpoint is not None and not has_checkpoint(attempt)
        if stuck or status not in KEPT_AFTER:
            delete_checkpoints(attempt.parent)

    @property
    def carried(self) -> Carried:
        """What the launcher of the earlier attempts has kept: nothing, and 0 s, where training begins."""
        return self.checkpoint.carried if self.checkpoint is not None else Carried()


@dataclass(frozen=True)
class LaunchOutcome:
    """Status of the group with the reason, the ranks' end events, and the traffic counted where shaping happens.

    Attributes:
        lateness: of the emulator between the same two moments, see ``network/namespaces/backend.py``.
    """

    status: Ending
    reason: str
    ends: dict[int, End] = field(default_factory=dict)
    wire: WireTraffic | None = None
    lateness: JsonObject | None = None


def cell_status(cell: Cell, attempt: Path, outcome: LaunchOutcome, link: LinkRecord, resumption: Resumption) -> Status:
    """How the cell ended, and what the records say about the trial.

    Args:
        attempt: its folder, inside the cell's.
    """
    folder, wall_s = CellFolder(attempt.parent), resumption.wall_s
    config = cell.config.model_dump(mode="json", by_alias=True)
    try:
        events = folder.events()
        summary = summarise(events, config, link.wire)
    except RecordError as error:  # a damaged disk: how it ended is recorded all the same, the rest is not known
        ended = "failed" if outcome.status == "done" else outcome.status
        events = {}
        summary, outcome = TrialSummary(), LaunchOutcome(ended, f"{outcome.reason}; {error}")
    if outcome.status == "done":
        try:
            if exceeded := longer_than_asked(cell.config, events):
                outcome = LaunchOutcome("invalid", f"{exceeded}; declare more, or let nothing else run here")
        except ConfigError as error:  # the file of a trace was there when training began
            outcome = LaunchOutcome("invalid", f"whether steps took as long as asked is not known: {error}")
    may_go_round = cell.role == HEADROOM  # waits at barriers in every step; its averages go off the clock
    if outcome.status == "done" and not may_go_round and (escaped := went_round(link.wire, cell.config.nodes)):
        outcome = LaunchOutcome("invalid", escaped)
    clock_s = summary.training_clock_s
    trained_s = None if clock_s is None else clock_s * cell.config.dilation
    return Status(
        id=cell.id,
        slug=cell.slug,
        status=outcome.status,
        reason=outcome.reason,
        attempt=int(attempt.name.rpartition("-")[2]),
        resumed_from=resumption.resumed_from,
        resume_refused=resumption.refused,
        wall_s=wall_s,
        overhead_s=None if trained_s is None else wall_s - trained_s - (summary.evaluation_s or 0.0),
        **dict(summary),
    )


def longer_than_asked(config: CellConfig, events: EventsByRank) -> str | None:
    """Why steps have not been as long as their ``step_time``, because computing took longer; None where they have been.

    Where each step is asked for the same time, the median of each node says it: half of its steps may be late, and one
    late node is enough, since the others wait for it. Where times are drawn, or follow a trace, hardly any may be of
    all nodes of which the same is asked: what is cut off are the short ones, and the mean is then no longer what was
    declared. Raises ConfigError where the file of a trace is not there any more, or has changed.
    """
    nodes: dict[AnyStepTime, list[int]] = {}
    for rank in events:
        if (declared := config.compute.step_time_of(rank)) is not None:
            nodes.setdefault(declared, []).append(rank)
    for declared, ranks in nodes.items():
        booked = [(rank, step) for rank in ranks for step in events[rank] if isinstance(step, Step) and step.ledger]
        if isinstance(declared, SteadyStepTime) and not declared.is_drawn:
            if late := _late_median(booked, declared.mean_s):
                median_s, late_ranks = late
                who = "" if len(late_ranks) == len(events) else f" on node {', '.join(map(str, late_ranks))}"
                return f"a step computes for {median_s:.3g} s{who}, longer than the declared step_time"
            continue
        computed_s = [step.ledger.compute_s for _, step in booked if step.ledger]
        who = "" if len(nodes) == 1 else f" on node {', '.join(map(str, sorted(ranks)))}"
        asked = {rank: asked_of(config, rank) for rank in ranks}
        num_late = sum(
            spent_s > asked_s(step.step, step.clock_s - step.duration_s)
            for (rank, step), spent_s in zip(booked, computed_s, strict=True)
            if (asked_s := asked[rank]) is not None
        )
        if num_late > MOST_LATE_SHARE * len(booked):
            share = f"{100 * num_late / len(booked):.3g} % of the steps compute for longer than their step_time{who}"
            return f"{share}, {declared} (at most {100 * MOST_LATE_SHARE:g} % may)"
    return None


def _late_median(booked: Iterable[tuple[int, Step]], asked_s: float) -> tuple[float, list[int]] | None:
    """The longest median of a node, in seconds, and the nodes whose own is above what was asked; None where none is."""
    computed_s: dict[int, list[float]] = {}
    for rank, step in booked:
        if step.ledger:
            computed_s.setdefault(rank, []).append(step.ledger.compute_s)
    medians_s = {rank: statistics.median(times_s) for rank, times_s in computed_s.items()}
    late = sorted(rank for rank, median_s in medians_s.items() if median_s > asked_s)
    return (max(medians_s[rank] for rank in late), late) if late else None


class LinkFile:
    """Written after every step that adds to it, so that a crash leaves what was known by then.

    Attributes:
        record: what it holds.

    Args:
        link: as asked, in emulated time.
        dilation: so many times slower than the machine's time that runs.
        shrink: its rates are divided by it before, as payloads are.

    Raises:
        ValueError: there is no such slow motion of the link.
    """

    def __init__(self, link: Link, attempt: Path, dilation: float = 1.0, shrink: float = 1.0) -> None:
        self._link, self._path = link.shrunk(shrink).dilated(dilation), attempt / "link.json"
        is_made_otherwise = dilation != 1 or shrink != 1
        self.record = LinkRecord(
            requested=link.model_dump(mode="json", by_alias=True),
            dilation=dilation if dilation != 1 else None,
            shrink=shrink if shrink != 1 else None,
            dilated=self._link.model_dump(mode="json", by_alias=True) if is_made_otherwise else None,
            backend=None,
            backend_reason=None,
            applied=None,
            achieved_before=None,
            achieved_after=None,
            emulator=Emulator(),
            wire=None,
        )

    def add_network(self, network: Network) -> None:
        """Which back end carries the link, why, and with which parameters."""
        applied = Applied.model_validate(network.applied)
        self._update(backend=network.backend, backend_reason=network.backend_reason, applied=applied)

    def add_real_network(self, interfaces: Sequence[str]) -> None:
        """That the workers use a network which nobody here has made: by these interfaces, in the order of the ranks."""
        backend, reason = "none", "the network between the hosts, as it is"
        if self._link.shaped:
            backend, reason = "interface", "the kernels of the hosts shape their interfaces"
        emulator = Emulator(interfaces=tuple(interfaces))
        self._update(backend=backend, backend_reason=reason, applied=None, emulator=emulator)

    def add_virtual_nodes(self) -> None:
        """That nothing has crossed any network."""
        self._update(backend="none", backend_reason="virtual nodes share one process, and nothing leaves it")

    def add_found(self, when: Moment, measurement: Measurement, clock_s: float | None = None) -> None:
        """What the ranks have found themselves, as field ``when``; of those during the training there may be many.

        Args:
            clock_s: what the training clock stood at; None before it started and after it ended.
        """
        if clock_s is None:
            self._update(**{when: measurement})
            return
        found = measurement.model_copy(update={"clock_s": clock_s})
        earlier = [one for one in self.record.achieved_during if one.clock_s != clock_s]  # the same try again
        self._update(achieved_during=(*earlier, found))

    def add_wire(self, outcome: LaunchOutcome) -> None:
        """What has crossed the network."""
        self._update(wire=_wire(outcome))

    def read_back(self, hosts: Sequence[Json]) -> None:
        """Take over what rank 0's host has written of this attempt's link, and add what was applied on each host.

        Args:
            hosts: as each of them says itself, in order; None of a silent one.
        """
        with contextlib.suppress(RecordError):  # of another version; what is known here stands
            self.record = read_record(LinkRecord, self._path) or self.record
        if any(hosts):
            self._update(applied=Applied.model_validate({"hosts": list(hosts)}))

    def add_measurement(self, network: Network, when: Moment) -> str | None:
        """Probe the link into field ``when``; returns what is out of tolerance, None where nothing is."""
        rejected: list[list[str]] = []
        for number in range(1, VERIFY_TRIES + 1):
            measured = verify(network, self._link, len(network.nodes))
            content = {**measured.to_json(), "tries": number, "rejected": rejected}
            self._update(**{when: Measurement.model_validate(content)})
            if measured.verdict == "ok":
                return None
            rejected = [*rejected, list(measured.reasons)]
        return "; ".join(measured.reasons)

    def add_traffic(self, network: Network, outcome: LaunchOutcome) -> str | None:
        """How the emulator fared and what crossed it; returns why the emulator was unfit, None where it was fit."""
        emulator = emulator_of(network.health(), outcome.lateness)
        self._update(emulator=emulator, wire=_wire(outcome))
        return emulator_unfit(emulator, self._link.dilation)

    def _update(self, **fields: object) -> None:
        self.record = self.record.model_copy(update=fields)
        write_record(self._path, self.record)


def emulator_of(health: JsonObject, training: JsonObject | None) -> Emulator:
    """How a back end fared, as the record of a cell has it.

    Args:
        health: as ``Network.health`` gives it.
        training: lateness of the frames that count, as ``lateness_between`` gives it; None where there were none.
    """
    return Emulator.model_validate({**health, "training": training or lateness_between({}, health)})


def emulator_unfit(emulator: Emulator, dilation: float = 1.0) -> str | None:
    """Why the emulator did not keep up with its link, whose time runs ``dilation`` times slower; None where it did."""
    training = emulator.training or Lateness()
    lost_frames = (emulator.overruns or 0) + (emulator.unsent or 0)
    if lost_frames > MOST_LOST_SHARE * max(training.frames, FRAMES_FOR_A_P99):
        return f"the emulator lost {lost_frames} frames that the link would have carried"
    if (late_s := training.p99_s or 0.0) > LATE_EMULATOR_S * dilation and training.frames >= FRAMES_FOR_A_P99:
        return f"the emulator was late: 1 % of the frames left more than {late_s * 1e3:.0f} ms after their time"
    return None


def with_log(reason: str, attempt: Path, rank: int) -> str:
    """``reason`` and the last lines that a rank printed, where it printed any that are not said with it already."""
    text = read_tail(attempt / f"rank{rank}.log", LOG_TAIL_BYTES).decode(errors="replace")
    lines = text.strip().splitlines()[-LOG_TAIL_LINES:]
    if all(line.removeprefix("error: ").strip() in reason for line in lines):
        return reason
    tail = "\n".join(lines)
    return f"{reason}\nlast lines of rank{rank}.log:\n{tail}"


def went_round(wire: Wire | None, num_nodes: int) -> str | None:
    """Why a training has used more than its link; None where it has not, or where that was not counted."""
    if wire is None or wire.control_bytes is None:
        return None
    most = num_nodes * (MOST_CONTROL_BYTES_BESIDE + MOST_CONTROL_BYTES_A_STEP * (wire.steps or 0))
    if wire.control_bytes <= most:
        return None
    return (
        f"{wire.control_bytes} B took the unshaped control path while the training clock ran, where decisions to stop "
        f"explain {most} B: something that trains has left the link"
    )


def _wire(outcome: LaunchOutcome) -> Wire | None:
    """Bytes per step without acknowledgements, and as a multiple of the payload that the codecs claim."""
    if outcome.wire is None:
        return None
    steps = max((end.step for end in outcome.ends.values()), default=0)
    payload = sum(end.payload_bytes or 0 for end in outcome.ends.values())
    beside = [end.control_bytes for end in outcome.ends.values() if end.control_bytes is not None]
    sent = outcome.wire.bytes - (outcome.wire.ack_bytes or 0)
    return Wire(
        steps=steps,
        **dict(outcome.wire),
        per_step_bytes=sent / steps if steps else None,
        payload_bytes=payload,
        ratio=sent / payload if payload else None,
        control_bytes=sum(beside) if beside else None,
    )
