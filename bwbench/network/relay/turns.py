"""Whose turn it is among those who have something to send."""

from __future__ import annotations

from heapq import heappop, heappush


class Turns:
    """Who has had least is next, where what counts is what ``charge`` is told: transmissions, or airtime.

    With equal charges this is round robin. Who was silent for a while begins level with the one who is served: nobody
    saves up turns (start-time fair queueing; Goyal, Vin and Cheng, SIGCOMM 1996).
    """

    def __init__(self, number: int) -> None:
        self._had = [0.0] * number
        self._level = 0.0
        self._order = 0
        self._waiting: list[tuple[float, int, int]] = []  # heap of (had, order, who)

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def join(self, who: int) -> None:
        """``who`` has something to send, and is not waiting yet."""
        self._order += 1
        self._had[who] = max(self._had[who], self._level)
        heappush(self._waiting, (self._had[who], self._order, who))

    def take(self) -> int:
        """The next one, who waits no longer; somebody must be waiting."""
        self._level, _, who = heappop(self._waiting)
        return who

    def charge(self, who: int, amount: float) -> None:
        """``who`` has been served."""
        self._had[who] += amount
