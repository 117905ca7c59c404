"""Whose turn it is on the air among those who have something to send."""

from __future__ import annotations

from heapq import heappop, heappush


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
