"""The shared medium: one half-duplex air for all stations and their access point; what waits, and whose turn it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Generic

from bwbench.network.link.frame_sizes import SMALLEST_FRAME_BYTES
from bwbench.network.relay.disciplines import AbstractQueue, Packet, Room
from bwbench.network.relay.managed import Headers, queue_of
from bwbench.network.relay.schedule import NEVER, AbstractSchedule, Direction, FrameT, OnDrop, RelayModel, packets_of

# (src, dst, bytes it is charged, packets it counts as, frame): plain, as a named tuple would cost more than the rest.
Waiting = tuple[int, int, int, int, FrameT]

# Both are of emulated time.
_LONGEST_STALL_S = 0.1  # a transmission that takes so much longer than it seemed to is given up
_SHORTEST_SLEEP_S = 1e-3


class SharedSchedule(AbstractSchedule[FrameT]):
    """One transmission is on the air at a time: some overhead, then its frames at the PHY rate of the station.

    A frame from station to station crosses the air twice: up to the access point, then, after the latency of its path,
    down again. A wired node's frames need no air on their side. The access point has a queue for each station. A
    transmission takes up to ``aggregation`` frames of one queue, fewer at a slow station (``Air.most_frames``); they
    arrive together at its end.

    Under ``fairness: packet`` every station gets equally many transmissions, whatever these take, and the access point
    no more than a station, as under the distributed coordination function of IEEE 802.11. So one slow station slows all
    others down (Heusse et al., Performance anomaly of 802.11b, INFOCOM 2003), and stations that send as much as they
    can starve the access point. Under ``airtime`` every queue, the stations' and the access point's, gets equally much
    time.

    Not modelled: collisions and retries (the overhead is an average that does not depend on how many contend), the
    choice of a rate (each station has the one that was asked for, or its trace's), short-term luck in contention,
    priorities, power saving, other networks on the channel. Loss is what is left after retries: it strikes between the
    two crossings, so a lost frame has used the air on its way up, not on its way down.

    A trace is the PHY rate of its station. While it is 0 the station is left out; a transmission during which it
    collapses is given up and repeated, so that nobody blocks the air. In an outage a frame is lost that a dead station
    wants to send or that reaches the access point's queue for it.
    """

    def __init__(self, model: RelayModel, on_drop: OnDrop[FrameT], headers: Headers[FrameT] | None = None) -> None:
        super().__init__(model, on_drop)
        assert model.air is not None, "a switched link has a schedule of its own"
        self._air, self._wired = model.air, model.air.wired
        self._num_nodes = model.num_nodes
        # The stations' own by their number, then the access point's by the station's.
        directions = (*model.up, *model.down)
        self._queues: list[AirQueue[FrameT]] = [
            AirQueue(direction, model.link.dilation)
            if headers is None or direction.discipline is None
            else self._managed(index, direction, headers)
            for index, direction in enumerate(directions)
        ]
        self._most_packets = [model.air.most_frames(direction.rate_bps) for direction in directions]
        kind = PacketTurns if model.air.fairness == "packet" else AirtimeTurns
        self._turns: PacketTurns | AirtimeTurns = kind(model.num_nodes)
        self._coming: list[tuple[float, int, int, Waiting[FrameT]]] = []  # heap of (time, order, queue, frame)
        self._asleep: list[tuple[float, int]] = []  # heap of (time, queue): their rate is 0 until then
        self._air_free_s = 0.0

    def _managed(self, index: int, direction: Direction, headers: Headers[FrameT]) -> ManagedAirQueue[FrameT]:
        def dropped(waiting: Waiting[FrameT]) -> None:
            self._on_drop(waiting[0], waiting[1], waiting[4], entered=index >= self._num_nodes)

        seed = f"{self._model.link.seed} queue {index}"
        return ManagedAirQueue(direction, self._model.link.dilation, self._frame_bytes, seed, dropped, headers)

    def submit(self, now_s: float, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        """See the base class."""
        if self._has_outages and self._is_dead(src, now_s):
            self._on_drop(src, dst, frame, entered=False)
            return
        packets = packets_of(wire_bytes, self._frame_bytes)
        if src in self._wired:
            self._cross(now_s, (src, dst, wire_bytes, packets, frame))
            return
        self._order = order = self._order + 1
        heappush(self._coming, (now_s, order, src, (src, dst, wire_bytes, packets, frame)))

    def advance(self, now_s: float) -> None:
        """See the base class: whose turn it is can be decided only once the time of the decision is past."""
        coming, waiting = self._coming, self._turns.waiting
        while True:
            begin_s = self._air_free_s if waiting else self._next_decision_s()
            if begin_s > now_s:
                return  # nobody has anything to send until then, and something else may come first
            self._air_free_s = begin_s
            if (coming and coming[0][0] <= begin_s) or self._asleep:
                self._admit(begin_s)
            if waiting:
                self._transmit()

    def next_time(self) -> float:
        """See the base class."""
        decision_s = self._next_decision_s()
        return min(self._leaving[0][0], decision_s) if self._leaving else decision_s

    def look_ahead_s(self) -> float:
        """See the base class; the air need not be crossed between wired nodes."""
        crossings = max(0, 2 - len(self._wired))
        fastest_bps = max(direction.fastest_bps for direction in (*self._model.up, *self._model.down))
        crossing_s = self._air.transmission_s(SMALLEST_FRAME_BYTES, fastest_bps)
        return self._shortest_delay_s() + crossings * crossing_s

    def _next_decision_s(self) -> float:
        """When the air is free and somebody has something to send, as far as is known."""
        if self._turns.waiting:
            return self._air_free_s
        next_s = self._coming[0][0] if self._coming else NEVER
        if self._asleep and self._asleep[0][0] < next_s:
            next_s = self._asleep[0][0]
        return next_s if next_s > self._air_free_s else self._air_free_s

    def _admit(self, now_s: float) -> None:
        """Put the frames that have come by ``now_s`` into their queues, or drop them where there is no room."""
        coming = self._coming
        while coming and coming[0][0] <= now_s:
            came_s, _, index, waiting = heappop(coming)
            queue = self._queues[index]
            was_empty = queue.is_empty
            if not queue.append(came_s, waiting):
                src, dst, _, _, frame = waiting
                self._on_drop(src, dst, frame, entered=index >= self._num_nodes)
            elif was_empty and not queue.is_empty:
                self._turns.join(index)
        while self._asleep and self._asleep[0][0] <= now_s:
            self._turns.join(heappop(self._asleep)[1])

    def _transmit(self) -> None:
        """The next transmission; a queue whose station's rate is 0 is put to sleep instead."""
        turns, air, begin_s = self._turns, self._air, self._air_free_s
        index = turns.take()
        queue = self._queues[index]
        most = self._most_packets[index]
        taken, packets, num_bytes = queue.take(begin_s, most)
        if not taken:  # a discipline has dropped all of it
            turns.served(index, 0.0, 0.0)
            return
        # More than one only where there are super-packets.
        transmissions = packets / most if packets > most else 1.0
        on_air_s = begin_s + transmissions * air.overhead_s
        end_s, has_crossed = queue.sent_s(on_air_s, num_bytes, self._since_s)
        if end_s > on_air_s:
            self._air_free_s = end_s
            turns.served(index, transmissions, end_s - begin_s)
        else:
            turns.served(index, 0.0, 0.0)
        if not has_crossed:
            queue.put_back(taken)
            heappush(self._asleep, (queue.wakes_s(self._air_free_s, self._since_s), index))
            return
        for waiting in taken:
            if index < self._num_nodes:
                self._cross(end_s, waiting)
            else:
                self._order = order = self._order + 1
                heappush(self._leaving, (end_s, order, waiting[1], waiting[4]))
        if not queue.is_empty:
            turns.join(index)

    def _cross(self, sent_s: float, waiting: Waiting[FrameT]) -> None:
        """From the sender's side to the receiver's: a wired node's wire, or the access point's queue for a station."""
        src, dst, _, _, frame = waiting
        delays = self._delays
        arrival_s = sent_s + self._latency_s[src][dst] if delays is None else delays.arrival_s(sent_s, src, dst)
        self._order = order = self._order + 1
        if self._loses_on_the_way and self._is_lost(src, dst, arrival_s):
            self._on_drop(src, dst, frame, entered=True)
        elif dst in self._wired:
            heappush(self._leaving, (arrival_s, order, dst, frame))
        else:
            heappush(self._coming, (arrival_s, order, self._num_nodes + dst, waiting))

    def switch(self, now_s: float, since_s: float | None) -> None:
        """See the base class."""
        self._begin(since_s)
        self._asleep = sorted((now_s, queue) for _, queue in self._asleep)  # a sorted list is a heap

    def change(self, now_s: float, model: RelayModel) -> None:
        """See the base class; the transmission that is on the air ends as it began."""
        assert model.air is not None, "the medium stays the same"
        super().change(now_s, model)
        self._air = model.air
        directions = (*model.up, *model.down)
        self._most_packets = [model.air.most_frames(direction.rate_bps) for direction in directions]
        for queue, direction in zip(self._queues, directions, strict=True):
            queue.become(direction)


class AirQueue(Generic[FrameT]):
    """A drop-tail queue, and the PHY rate at which its frames cross the air. What is on the air waits no longer."""

    __slots__ = (
        "_bytes",
        "_dilation",
        "_frames",
        "_packets",
        "_queue_bytes",
        "_queue_packets",
        "_seconds_per_byte",
        "_trace",
    )

    def __init__(self, direction: Direction, dilation: float) -> None:
        self._frames: deque[Waiting[FrameT]] = deque()
        self._bytes = self._packets = 0
        self._dilation = dilation
        self.become(direction)

    def become(self, direction: Direction) -> None:
        """Be the queue of that direction from now on, with what waits here."""
        self._queue_bytes, self._queue_packets = direction.queue_bytes, direction.queue_packets
        self._seconds_per_byte = 8 / direction.rate_bps
        self._trace = direction.trace

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._frames

    def append(self, now_s: float, waiting: Waiting[FrameT]) -> bool:
        """Take a frame in; False where there is no room. An empty queue takes any frame."""
        num_bytes, packets = self._bytes + waiting[2], self._packets + waiting[3]
        if self._frames:
            if self._queue_packets is None:
                if num_bytes > self._queue_bytes:
                    return False
            elif packets > self._queue_packets:
                return False
        self._frames.append(waiting)
        self._bytes, self._packets = num_bytes, packets
        return True

    def take(self, now_s: float, most: int) -> tuple[list[Waiting[FrameT]], int, int]:
        """Take out what goes in one transmission of ``most`` packets, as far as they wait: (frames, packets, bytes).

        Super-packets stay whole, so with the last one these may be more.
        """
        frames = self._frames
        waiting = frames.popleft()
        taken, num_bytes, packets = [waiting], waiting[2], waiting[3]
        while packets < most and frames:
            waiting = frames.popleft()
            taken.append(waiting)
            num_bytes += waiting[2]
            packets += waiting[3]
        self._bytes -= num_bytes
        self._packets -= packets
        return taken, packets, num_bytes

    def put_back(self, taken: Sequence[Waiting[FrameT]]) -> None:
        """They have not crossed the air."""
        self._frames.extendleft(reversed(taken))
        self._bytes += sum(waiting[2] for waiting in taken)
        self._packets += sum(waiting[3] for waiting in taken)

    def sent_s(self, begin_s: float, num_bytes: int, since_s: float | None) -> tuple[float, bool]:
        """When bytes that begin to cross the air at ``begin_s`` have crossed it, and whether they have.

        Where the rate collapses meanwhile they have not: the sender gives up when they should have been there.

        Args:
            since_s: when the link began to play; None while it is steady.
        """
        trace = self._trace
        if trace is None or since_s is None:
            return begin_s + num_bytes * self._seconds_per_byte, True
        time_s, num_bits = max(begin_s - since_s, 0.0), num_bytes * 8
        rate_bps = trace.rate_at(time_s)
        if not rate_bps:
            return begin_s, False
        expected_s, really_s = num_bits / rate_bps, trace.finish(time_s, num_bits) - time_s
        if really_s > expected_s + _LONGEST_STALL_S * self._dilation:
            return begin_s + expected_s, False
        return begin_s + really_s, True

    def wakes_s(self, now_s: float, since_s: float | None) -> float:
        """When it is worth trying again after a transmission that failed."""
        if self._trace is None or since_s is None:
            return now_s
        return max(
            since_s + self._trace.finish(max(now_s - since_s, 0.0), 1.0), now_s + _SHORTEST_SLEEP_S * self._dilation
        )


class ManagedAirQueue(AirQueue[FrameT]):
    """The same where a discipline manages it: it decides when a transmission begins.

    Args:
        dropped: told of every frame that is dropped, on arrival or later.
    """

    __slots__ = ("_flow", "_frame_bytes", "_managed")

    def __init__(
        self,
        direction: Direction,
        dilation: float,
        frame_bytes: int,
        seed: str,
        dropped: Callable[[Waiting[FrameT]], None],
        headers: Headers[FrameT],
    ) -> None:
        super().__init__(direction, dilation)

        def mark(packet: Packet[Waiting[FrameT]]) -> bool:
            marked = headers.marked(packet.item[4])
            if marked is not None:
                packet.item = packet.item[:4] + (marked,)
            return marked is not None

        self._flow, self._frame_bytes = headers.flow, frame_bytes
        self._managed: AbstractQueue[Waiting[FrameT]] = queue_of(
            direction, frame_bytes, seed, lambda packet: dropped(packet.item), mark
        )

    def become(self, direction: Direction) -> None:
        """See the base class; its discipline stays what it is."""
        super().become(direction)
        if hasattr(self, "_managed"):
            room = Room(direction.queue_bytes, direction.queue_packets, self._frame_bytes)
            self._managed.become(room, direction.rate_bps)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, what has failed to cross the air included."""
        return not (self._frames or self._managed.num_packets)

    def append(self, now_s: float, waiting: Waiting[FrameT]) -> bool:
        """Take a frame in; what is dropped is told of, and so not here."""
        self._managed.put(now_s, Packet(waiting, waiting[2], waiting[3], self._flow(waiting[4])))
        return True

    def take(self, now_s: float, most: int) -> tuple[list[Waiting[FrameT]], int, int]:
        """See the base class; nothing where all of it had to be dropped."""
        taken: list[Waiting[FrameT]] = []
        num_bytes = packets = 0
        while packets < most:
            if self._frames:
                waiting = self._frames.popleft()
                self._bytes -= waiting[2]
                self._packets -= waiting[3]
            elif (packet := self._managed.take(now_s)) is not None:
                waiting = packet.item
            else:
                break
            taken.append(waiting)
            num_bytes += waiting[2]
            packets += waiting[3]
        return taken, packets, num_bytes


class Turns:
    """Who has had least is next, where what counts is what ``charge`` is told.

    With equal charges this is round robin. Who was silent for a while begins level with the one who is served: nobody
    saves up turns (start-time fair queueing; Goyal, Vin and Cheng, SIGCOMM 1996).

    Attributes:
        waiting: not empty where somebody waits.
    """

    def __init__(self, number: int) -> None:
        self.waiting: list[tuple[float, int, int]] = []  # heap of (had, order, who)
        self._had = [0.0] * number
        self._level = 0.0
        self._order = 0

    def join(self, who: int) -> None:
        """``who`` has something to send, and is not waiting yet."""
        self._order = order = self._order + 1
        had = self._had[who]
        if had < self._level:
            self._had[who] = had = self._level
        heappush(self.waiting, (had, order, who))

    def take(self) -> int:
        """The next one, who waits no longer; somebody must be waiting."""
        self._level, _, who = heappop(self.waiting)
        return who

    def charge(self, who: int, amount: float) -> None:
        """``who`` has been served, and may join again."""
        self._had[who] += amount


class PacketTurns:
    """Everybody gets equally many transmissions: the stations, and the access point, for its stations in their turn.

    Queues are numbered: those of N stations from 0, those of the access point, one a station, from N.

    Attributes:
        waiting: not empty where somebody waits.
    """

    def __init__(self, num_nodes: int) -> None:
        self._access_point = self._num_nodes = num_nodes
        self._transmitters = Turns(num_nodes + 1)
        self._receivers = Turns(num_nodes)
        self.waiting = self._transmitters.waiting

    def join(self, queue: int) -> None:
        """This queue has something to send, and is not waiting yet."""
        if queue < self._num_nodes:
            self._transmitters.join(queue)
            return
        if not self._receivers.waiting:
            self._transmitters.join(self._access_point)
        self._receivers.join(queue - self._num_nodes)

    def take(self) -> int:
        """The next queue, which waits no longer; ``served`` is to follow."""
        transmitter = self._transmitters.take()
        return transmitter if transmitter < self._access_point else self._num_nodes + self._receivers.take()

    def served(self, queue: int, transmissions: float, airtime_s: float) -> None:
        """What the queue that was taken last has had; it may join again."""
        if queue < self._num_nodes:
            self._transmitters.charge(queue, transmissions)
            return
        self._transmitters.charge(self._access_point, transmissions)
        self._receivers.charge(queue - self._num_nodes, transmissions)
        if self._receivers.waiting:
            self._transmitters.join(self._access_point)


class AirtimeTurns(Turns):
    """Every queue gets equally much time: each station's own, and each that the access point has for a station.

    Queues are numbered as in ``PacketTurns``.
    """

    def __init__(self, num_nodes: int) -> None:
        super().__init__(2 * num_nodes)

    def served(self, queue: int, transmissions: float, airtime_s: float) -> None:
        """What the queue that was taken last has had; it may join again."""
        self._had[queue] += airtime_s
