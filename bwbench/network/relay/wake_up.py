"""When the relay wakes up: rarely enough to be cheap, often enough to be exact.

Waking up costs as much as several frames. So frames that are due at nearly the same time leave together: some of them a
little early, some a little late, on average neither. Network cards do likewise before they interrupt (``ethtool -c``),
and for about as long. A frame by itself, such as a ping on an idle link, leaves when it is due.
"""

from __future__ import annotations

_SHARE_OF_LATENCY = 1 / 6
_SHARE_OF_PACKET = 1 / 2  # bursts of several packets would fill a queue that they do not fill one by one
_FEWEST_S, _MOST_S = 50e-6, 400e-6  # no less, since waking up is no more exact than that
_LEARNING_RATE = 0.05
# From this share of a core on bursts are the lesser evil: waking up less often leaves time for more frames.
_BUSY, _VERY_BUSY = 0.4, 0.7


class WakeUp:
    """Decides on the time; learns how long waking up takes, and how many frames leave at a time.

    Args:
        look_ahead_s: the shortest way through the link.
        packet_s: how long the largest packet takes on the fastest link.

    Attributes:
        early_s: a frame may leave so long before it is due.
    """

    def __init__(self, look_ahead_s: float, packet_s: float) -> None:
        self._longest_s = max(min(look_ahead_s * _SHARE_OF_LATENCY, _MOST_S), _FEWEST_S)
        self._usual_s = self._most_s = max(min(packet_s * _SHARE_OF_PACKET, self._longest_s), _FEWEST_S)
        self.early_s = _FEWEST_S
        self._wait_s = 0.0
        self._takes_s = 0.0
        self._crowd = 1.0

    def time_for(self, next_s: float, due_s: float) -> float:
        """When to wake up for what happens at ``next_s``, where ``due_s`` is when the next frame is due."""
        return next_s + self._wait_s - self._takes_s if due_s <= next_s else next_s + self._wait_s

    def time_to_look(self, latest_s: float) -> float:
        """When to wake up for what nobody knows of yet, if it must be known at ``latest_s``."""
        return latest_s - self._takes_s

    def woke(self, late_s: float) -> None:
        """The sleep has ended so much later than it should have."""
        self._takes_s += _LEARNING_RATE * (min(late_s, _FEWEST_S) - self._takes_s)

    def busy(self, share: float) -> None:
        """The relay has lately used this share of a core."""
        excess = min(max((share - _BUSY) / (_VERY_BUSY - _BUSY), 0.0), 1.0)
        self._most_s = self._usual_s + excess * (self._longest_s - self._usual_s)

    def sent(self, frames: int, lateness_s: float) -> None:
        """So many frames have left at once, so late all together (less than 0: early).

        Of a crowd the first one waits as long as it takes to be right on average, and the others are early by what is
        left of the time that they may differ.
        """
        self._crowd += _LEARNING_RATE * (frames - self._crowd)
        window_s = max(_FEWEST_S, self._most_s * min(self._crowd - 1.0, 1.0))
        wait_s = self._wait_s - _LEARNING_RATE * max(min(lateness_s / frames, window_s), -window_s)
        self._wait_s = wait_s = max(0.0, min(wait_s, window_s))
        self.early_s = window_s - wait_s
