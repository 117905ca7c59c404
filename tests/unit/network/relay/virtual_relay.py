"""A relay in virtual time: frames in, what left when and what was lost out. No sockets, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bwbench.network.link import Link
from bwbench.network.link.rate_trace import RateTrace
from bwbench.network.relay.managed import ManagedSchedule
from bwbench.network.relay.routed import RoutedSchedule
from bwbench.network.relay.schedule import NEVER, AbstractSchedule, RelayModel
from bwbench.network.relay.shared_air import SharedSchedule
from bwbench.network.relay.switched import SwitchedSchedule

BANDWIDTH = "8 Mbit/s"  # a byte takes a microsecond
LATENCY_S = 0.0025
FRAME_BYTES = 1514


class Submission(NamedTuple):
    time_s: float
    src: int
    dst: int
    num_bytes: int


class Left(NamedTuple):
    due_s: float
    dst: int
    number: int  # of the submission


@dataclass
class Outcome:
    left: list[Left] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)  # never entered the link
    lost: list[int] = field(default_factory=list)  # lost on the way

    @property
    def ends_s(self) -> dict[int, float]:
        return {number: due_s for due_s, _, number in self.left}

    def goodput_bps(self, submissions: Sequence[Submission], begin_s: float, end_s: float, *srcs: int) -> float:
        """Of what left in a stretch of time, of these senders or of all."""
        frames = [submissions[number] for due_s, _, number in self.left if begin_s < due_s <= end_s]
        return sum(frame.num_bytes * 8 for frame in frames if not srcs or frame.src in srcs) / (end_s - begin_s)


class Flows:
    """Headers of submissions: each pair of nodes is one flow, which nobody marks."""

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._pairs = pairs

    def flow(self, frame: int) -> int:
        src, dst = self._pairs[frame]
        return 100 * src + dst

    def marked(self, frame: int) -> int | None:
        return None


def model(num_nodes: int = 4, traces: Mapping[str, RateTrace] | None = None, **asked: Any) -> RelayModel:
    """Of a link of 8 Mbit/s and 2.5 ms with changes; a trace's file is the name of one of ``traces``."""
    link = {"bandwidth": BANDWIDTH, "latency": "2.5 ms", "queue": "64 kB", **asked}
    link = {key: value for key, value in link.items() if value is not None}
    known = traces or {}
    return RelayModel.of(Link.model_validate(link), num_nodes, lambda trace: known[trace.file])


def trace_of(name: str, rates: RateTrace) -> dict[str, Any]:
    """How a link declares it, as once the file has been read."""
    return {"file": name, "mean": f"{rates.mean_bps} bit/s"}


def run(
    asked: RelayModel,
    submissions: Sequence[Submission | tuple[float, int, int, int]],
    step_s: float | None = None,
    commands: Sequence[tuple[float, str] | tuple[float, str, float]] = (),
    until_s: float = NEVER,
    changes: Sequence[tuple[float, RelayModel]] = (),
) -> Outcome:
    """Let a relay look every ``step_s``, or (None) whenever something happens.

    Args:
        commands: (time, "play" or "hold"), in order; (time, "play", how far traces and outages have got by then).
        until_s: what is due later stays in the relay.
        changes: (time, the link from then on), in order.
    """
    outcome = Outcome()

    def on_drop(src: int, dst: int, frame: int, entered: bool) -> None:
        (outcome.lost if entered else outcome.refused).append(frame)

    schedule: AbstractSchedule[int]
    flows = Flows([(src, dst) for _, src, dst, _ in submissions])
    if asked.air is not None:
        schedule = SharedSchedule[int](asked, on_drop, flows)
    elif asked.sites is not None:
        schedule = RoutedSchedule[int](asked, on_drop)
    elif asked.is_managed:
        schedule = ManagedSchedule[int](asked, on_drop, flows)
    else:
        schedule = SwitchedSchedule[int](asked, on_drop)
    waiting = sorted(enumerate(submissions), key=lambda item: item[1][0])[::-1]
    told, changing = list(reversed(commands)), list(reversed(changes))
    now_s = waiting[-1][1][0] if waiting else 0.0
    while now_s <= until_s:
        if told and told[-1][0] <= now_s:
            time_s, word, *at_s = told.pop()
            schedule.switch(time_s, time_s - sum(at_s) if word == "play" else None)
        if changing and changing[-1][0] <= now_s:
            schedule.change(*changing.pop())
        while waiting and waiting[-1][1][0] <= now_s:
            number, (time_s, src, dst, num_bytes) = waiting.pop()
            schedule.submit(time_s, src, dst, num_bytes, number)
        schedule.advance(now_s)
        while (due := schedule.pop_due(now_s)) is not None:
            outcome.left.append(Left(*due))
        others_s = [waiting[-1][1][0]] if waiting else []
        others_s += [time_s for time_s, *_ in (*told[-1:], *changing[-1:])]
        next_s = min(schedule.next_time(), *others_s, NEVER)
        if next_s == NEVER:
            break
        assert next_s >= now_s or step_s
        now_s = next_s if step_s is None else now_s + step_s
    if until_s == NEVER:
        assert len(outcome.left) + len(outcome.refused) + len(outcome.lost) == len(submissions)
    return outcome


def stream(
    src: int, dst: int, rate_bps: float, duration_s: float, num_bytes: int = FRAME_BYTES, begin_s: float = 0.0
) -> list[Submission]:
    """Frames at even distances."""
    gap_s = num_bytes * 8 / rate_bps
    return [Submission(begin_s + number * gap_s, src, dst, num_bytes) for number in range(int(duration_s / gap_s))]
