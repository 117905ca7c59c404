"""The shared medium: one half-duplex air for all stations and their access point."""

from __future__ import annotations

from heapq import heappop, heappush

from bwbench.network.link import ETHERNET_FRAME_BYTES
from bwbench.network.relay.air_queue import AirQueue, Waiting
from bwbench.network.relay.bottleneck import packets_of
from bwbench.network.relay.model import RelayModel
from bwbench.network.relay.schedule import NEVER, SMALLEST_FRAME_BYTES, AbstractSchedule, FrameT, OnDrop
from bwbench.network.relay.turns import AirtimeTurns, PacketTurns


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

    def __init__(self, model: RelayModel, on_drop: OnDrop[FrameT]) -> None:
        super().__init__(model, on_drop)
        assert model.air is not None, "a switched link has a schedule of its own"
        self._air, self._wired = model.air, model.air.wired
        self._num_nodes = model.num_nodes
        # The stations' own by their number, then the access point's by the station's.
        directions = (*model.up, *model.down)
        self._queues: list[AirQueue[FrameT]] = [AirQueue(direction) for direction in directions]
        self._most_packets = [model.air.most_frames(direction.rate_bps) for direction in directions]
        kind = PacketTurns if model.air.fairness == "packet" else AirtimeTurns
        self._turns: PacketTurns | AirtimeTurns = kind(model.num_nodes)
        self._coming: list[tuple[float, int, int, Waiting[FrameT]]] = []  # heap of (time, order, queue, frame)
        self._asleep: list[tuple[float, int]] = []  # heap of (time, queue): their rate is 0 until then
        self._air_free_s = 0.0

    def submit(self, now_s: float, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        """See the base class."""
        if self._has_outages and self._is_dead(src, now_s):
            self._on_drop(src, dst, frame, entered=False)
            return
        packets = 1 if wire_bytes <= ETHERNET_FRAME_BYTES else packets_of(wire_bytes)
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
            _, _, index, waiting = heappop(coming)
            queue = self._queues[index]
            was_empty = not queue.frames
            if not queue.append(waiting):
                src, dst, _, _, frame = waiting
                self._on_drop(src, dst, frame, entered=index >= self._num_nodes)
            elif was_empty:
                self._turns.join(index)
        while self._asleep and self._asleep[0][0] <= now_s:
            self._turns.join(heappop(self._asleep)[1])

    def _transmit(self) -> None:
        """The next transmission; a queue whose station's rate is 0 is put to sleep instead."""
        turns, air, begin_s = self._turns, self._air, self._air_free_s
        index = turns.take()
        queue = self._queues[index]
        most = self._most_packets[index]
        taken, packets, num_bytes = queue.take(most)
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
        if queue.frames:
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

    def _switch(self, now_s: float, since_s: float | None) -> None:
        self._since_s = since_s
        self._asleep = sorted((now_s, queue) for _, queue in self._asleep)  # a sorted list is a heap
