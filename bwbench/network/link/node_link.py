"""What holds at one node: its queue, what differs there, its link with everything filled in, its TCP, paths from it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError, WithJsonSchema
from pydantic_core import InitErrorDetails

from bwbench.base.explain import explain, problem, refused
from bwbench.base.plain_data import JsonObject
from bwbench.base.units import DURATION, MEMORY, LinkDelay, LinkRate, Memory, PositiveDuration, Probability
from bwbench.network.link.discipline import DROP_TAIL, KINDS, NAMES, AbstractDiscipline, kind_of
from bwbench.network.link.frame_sizes import ETHERNET_FRAME_BYTES
from bwbench.network.link.variation import Trace, Traces

MINIMUM_QUEUE_BYTES = 64_000  # below one BDP of 64 kB a single super-packet of the sender would not fit
LONGEST_MINIMUM_S = 1.0  # … but 64 kB must not become seconds on a slow link
FEWEST_FRAMES = 4  # with less TCP cannot even tell a loss from silence
MOST_BYTES = 1e10
MOST_PACKETS = 10_000_000
MOST_BDP = 1000.0
LONGEST_QUEUE_S = 60.0
_COUNTED = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(packets?|bdp)\s*", re.IGNORECASE)
_EXAMPLE = "write it like '50 ms' (at the rate), '64 kB', '100 packets' or '2 bdp' (bandwidth-delay products)"
_SIZE = "size"


@dataclass(frozen=True)
class Queue:
    """A queue before a bottleneck: drop-tail, or managed by a discipline.

    Attributes:
        amount: how much it holds.
        unit: ``s`` (of the bottleneck's rate), ``B``, ``packets`` (of whatever size) or ``bdp``.
        discipline: what manages it; None is drop-tail.
    """

    amount: float
    unit: str
    discipline: AbstractDiscipline | None = None

    @classmethod
    def parse(cls, asked: object) -> Queue:
        """The queue that a text, the name of a discipline or a mapping asks for.

        Raises PydanticCustomError that shows the right form; for what is inside a mapping ValidationError.
        """
        if isinstance(asked, Queue):
            return asked
        if isinstance(asked, str) and asked in NAMES:
            return cls._managed({"discipline": asked})
        return cls._managed(asked) if isinstance(asked, Mapping) else cls._sized(asked)

    @classmethod
    def _managed(cls, asked: Mapping[str, object]) -> Queue:
        if "discipline" not in asked:
            raise refused(f"a queue with keys names its discipline: {', '.join(NAMES)}; {_EXAMPLE}")
        lines = []
        try:
            kind = kind_of(asked["discipline"])
        except ValueError as error:
            raise _inside([problem(str(error), ("discipline",))]) from None
        size = DEFAULT_QUEUE if kind is None else cls._sized(kind.default_size)
        if _SIZE in asked:
            try:
                size = cls._sized(asked[_SIZE])
            except ValueError as error:
                lines.append(problem(str(error), (_SIZE,)))
        keys = {key: value for key, value in asked.items() if key != _SIZE}
        if kind is None:
            lines += [
                problem(f"{key!r} says nothing of a drop-tail queue, which has a 'size' alone", (key,))
                for key in keys
                if key != "discipline"
            ]
            managed = None
        else:
            try:
                managed = kind.model_validate(keys)
            except ValidationError as error:
                lines += [problem(message, loc) for loc, message in explain(error, kind)]
        if lines:
            raise _inside(lines)
        return replace(size, discipline=managed)

    @classmethod
    def _sized(cls, text: object) -> Queue:
        match = _COUNTED.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            if (duration_s := _duration_s(text)) is not None:
                if not 0 < duration_s <= LONGEST_QUEUE_S:
                    raise refused(f"{text!r} is out of range: more than 0 s, at most {LONGEST_QUEUE_S:g} s")
                return cls(duration_s, "s")
            try:
                num_bytes = MEMORY.parse(text)
            except ValueError as error:
                raise refused(f"{error}; {_EXAMPLE}" if "Allowed" in str(error) else f"{text!r}: {_EXAMPLE}") from None
            if not ETHERNET_FRAME_BYTES <= num_bytes <= MOST_BYTES:
                bounds = f"one frame ({ETHERNET_FRAME_BYTES} B) to 10 GB"
                raise refused(f"a queue of {num_bytes:g} B is out of range: {bounds}")
            return cls(num_bytes, "B")
        amount = float(match[1])
        if match[2].lower() == "bdp":
            if not 0 < amount <= MOST_BDP:
                raise refused(f"{text!r} is out of range: more than 0 bdp, at most {MOST_BDP:g}")
            return cls(amount, "bdp")
        if not (amount.is_integer() and 1 <= amount <= MOST_PACKETS):
            raise refused(f"{text!r} is out of range: a whole number of packets from 1 to {MOST_PACKETS}")
        return cls(amount, "packets")

    def __str__(self) -> str:
        """In words: ``64 kB``, of a managed one ``fq_codel of 10240 packets, target 10 ms``; all that is not usual."""
        managed = self.discipline
        if managed is None:
            return self.size
        usual = type(managed)(discipline=managed.discipline).written()
        keys = {key: own for key, own in managed.written().items() if own != usual[key]}
        return ", ".join([f"{managed.discipline} of {self.size}", *(_key_words(*item) for item in keys.items())])

    @property
    def size(self) -> str:
        """How much it holds, as it is written: ``64 kB``."""
        if self.unit in _WRITTEN_AS:
            return _WRITTEN_AS[self.unit].format(self.amount)
        return f"{self.amount:.12g} {self.unit}"

    def written(self) -> str | JsonObject:
        """The form in which it is recorded: a size, of a managed queue all its keys, defaults included."""
        if self.discipline is None:
            return self.size
        return {**self.discipline.written(), _SIZE: self.size}

    @property
    def packets(self) -> int | None:
        """How many packets it holds where it counts packets; None where it counts bytes."""
        return int(self.amount) if self.unit == "packets" else None

    def num_bytes(self, rate_bps: float, rtt_s: float, frame_bytes: int) -> int:
        """Bytes of Ethernet frames that it holds before a bottleneck of ``rate_bps``; packets count as full frames.

        What grows with the rate (a time, bandwidth-delay products) is no less than 64 kB, unless that would take more
        than a second to send: on a slow link or a short way it would not hold the burst of one sender.
        """
        if self.unit == "packets":
            return int(self.amount) * frame_bytes
        if self.follows_rate:
            duration_s = self.amount if self.unit == "s" else self.amount * rtt_s
            minimum = max(min(MINIMUM_QUEUE_BYTES, rate_bps / 8 * LONGEST_MINIMUM_S), FEWEST_FRAMES * frame_bytes)
            return int(max(rate_bps / 8 * duration_s, minimum))
        return int(self.amount)

    @property
    def follows_rate(self) -> bool:
        """Whether it is as long as the rate makes it, and has a minimum: neither bytes nor packets were named."""
        return self.unit in ("s", "bdp")


_WRITTEN_AS = {"B": MEMORY, "s": DURATION}


def _duration_s(text: object) -> float | None:
    """Seconds, where the text is a time with its unit."""
    try:
        return DURATION.parse(text)
    except ValueError:
        return None


# What access networks, home routers and switches hold lies between 20 and some hundred milliseconds: docs/links.md.
DEFAULT_QUEUE = Queue(0.05, "s")
# What held where a record has none: until there was a default in time.
QUEUE_OF_EARLIER_RECORDS = Queue(1.0, "bdp")


def _key_words(key: str, value: object) -> str:
    return key if value is True else f"{key} {value}"


def queue_words(recorded: object) -> str:
    """A queue of a record in words, however odd it is."""
    try:
        return str(Queue.parse(recorded))
    except ValueError:
        return json.dumps(recorded, sort_keys=True)


def _inside(lines: list[InitErrorDetails]) -> ValidationError:
    """Problems at their keys: pydantic puts the place of the queue before each."""
    return ValidationError.from_exception_data("queue", lines)


_SIZES = ["50 ms", "64 kB", "100 packets", "2 bdp"]


def _json_schema() -> dict[str, Any]:
    """A size, the name of a discipline, or a mapping with the keys of one."""
    size = {"type": "string", "examples": [*_SIZES, *NAMES], "title": "queue"}
    kinds = [kind.model_json_schema(by_alias=True) for kind in KINDS.values()]
    tail = {"properties": {"discipline": {"const": DROP_TAIL}}, "additionalProperties": False}
    managed = [{**kind, "properties": {**kind["properties"], _SIZE: size}} for kind in (tail, *kinds)]
    return {"anyOf": [size, *({"type": "object", **kind, "required": ["discipline"]} for kind in managed)]}


# Disciplines are written with all that holds, so that a default which changes is another cell.
QueueSize = Annotated[
    Queue, PlainValidator(Queue.parse), PlainSerializer(Queue.written), WithJsonSchema(_json_schema())
]


class NodeOverride(BaseModel):
    """What is different at one node; None is as everywhere. The keys mean what they mean in ``Link``."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    bandwidth_bps: LinkRate | None = Field(None, alias="bandwidth")
    up_bps: LinkRate | None = Field(None, alias="up")
    down_bps: LinkRate | None = Field(None, alias="down")
    latency_s: LinkDelay | None = Field(None, alias="latency")
    jitter_s: LinkDelay | None = Field(None, alias="jitter")
    loss: Probability | None = None
    queue: QueueSize | None = None
    trace: Traces | None = None


@dataclass(frozen=True)
class NodeLink:
    """What one node's link is asked to be: base link and override put together.

    Attributes:
        up_bps, down_bps: rate of Ethernet frames from the node and to it; the mean where a trace drives it. On a shared
            air both are the PHY rate of the station.
        latency_s: one-way delay between this node and one that is like it; see ``path_between``.
        jitter_s: standard deviation of that delay.
        loss: share of the frames lost between this node and one that is like it.
        up_queue_bytes, down_queue_bytes: room in the queue before each direction.
        queue_packets: where the queue counts packets: how many; None where it counts bytes.
        discipline: what manages these queues; None where they are drop-tail.
        up_trace, down_trace: what drives the rate over time; None where it is constant.
    """

    up_bps: float
    down_bps: float
    latency_s: float
    jitter_s: float
    loss: float
    up_queue_bytes: int
    down_queue_bytes: int
    queue_packets: int | None = None
    up_trace: Trace | None = None
    down_trace: Trace | None = None
    discipline: AbstractDiscipline | None = None

    @property
    def slowest_bps(self) -> float:
        """The slower of both directions."""
        return min(self.up_bps, self.down_bps)


@dataclass(frozen=True)
class Path:
    """What happens to a frame between the sender's uplink and the receiver's downlink."""

    latency_s: float
    jitter_s: float
    loss: float


def path_between(src: NodeLink, dst: NodeLink) -> Path:
    """Each end contributes half: the mean latency, half of both variances, and both halves of the loss.

    So a path between two nodes that are alike is what their link says.
    """
    return Path(
        latency_s=(src.latency_s + dst.latency_s) / 2,
        jitter_s=src.jitter_s
        if src.jitter_s == dst.jitter_s
        else math.hypot(src.jitter_s, dst.jitter_s) / math.sqrt(2),
        loss=src.loss if src.loss == dst.loss else 1 - math.sqrt((1 - src.loss) * (1 - dst.loss)),
    )


class TcpSettings(BaseModel):
    """What the kernel's TCP is told in every node; None leaves the kernel's own value. All of it is recorded.

    Attributes:
        congestion_control: ``reno``, ``cubic``, ``bbr``, …: any that the kernel has. None takes cubic, as real hosts
            do, and reno where the kernel has no cubic.
        slow_start_after_idle: whether a connection that was silent begins slowly again (the kernel's default is yes).
        receive_buffer_bytes, send_buffer_bytes: the largest buffer of a connection.
        rto_max_s: longest wait between two retransmissions (net.ipv4.tcp_rto_max_ms, from Linux 6.15 on).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    congestion_control: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,15}$")] | None = None
    slow_start_after_idle: bool | None = None
    receive_buffer_bytes: Memory | None = Field(None, alias="receive_buffer")
    send_buffer_bytes: Memory | None = Field(None, alias="send_buffer")
    rto_max_s: PositiveDuration | None = Field(None, alias="rto_max")

    def sysctls(self) -> dict[str, str]:
        """Names below net.ipv4 and the text to write; without the congestion control and its default."""
        found: dict[str, str] = {}
        if self.slow_start_after_idle is not None:
            found["tcp_slow_start_after_idle"] = str(int(self.slow_start_after_idle))
        for name, value in (("tcp_rmem", self.receive_buffer_bytes), ("tcp_wmem", self.send_buffer_bytes)):
            if value is not None:
                found[name] = f"4096 {min(131_072, int(value))} {int(value)}"
        if self.rto_max_s is not None:
            found["tcp_rto_max_ms"] = str(round(self.rto_max_s * 1e3))
        return found
