"""Loss in bursts: the model of Gilbert (1960) and Elliott (1963), in terms that can be measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GilbertElliott:
    """A chain of two states that moves before every frame; each state loses frames with a probability of its own.

    Attributes:
        good_to_bad: probability of leaving the good state (``p`` of ``tc-netem``'s ``gemodel``).
        bad_to_good: probability of leaving the bad state (``r``); the bad state lasts 1 / r frames on average.
        loss_in_good: probability with which a frame is lost in the good state (``1-k``).
        loss_in_bad: the same in the bad state (``1-h``).
    """

    good_to_bad: float
    bad_to_good: float
    loss_in_good: float = 0.0
    loss_in_bad: float = 1.0

    @classmethod
    def of(cls, loss: float, mean_burst: float, loss_in_good: float = 0.0, loss_in_bad: float = 1.0) -> GilbertElliott:
        """The chain that loses the share ``loss`` on average and whose bad state lasts ``mean_burst`` frames.

        With the default probabilities ``mean_burst`` is the mean number of frames lost in a row. Raises ValueError
        where there is no such chain.
        """
        if mean_burst < 1:
            raise ValueError("a burst is 1 frame or more")
        if not 0 <= loss_in_good < loss <= loss_in_bad <= 1 or loss == loss_in_bad:
            raise ValueError("the loss must lie between that in the good and that in the bad state")
        share_bad = (loss - loss_in_good) / (loss_in_bad - loss_in_good)
        bad_to_good = 1 / mean_burst
        good_to_bad = bad_to_good * share_bad / (1 - share_bad)
        if good_to_bad > 1:
            raise ValueError(f"bursts of {mean_burst:g} frames are too short for a loss of {loss:g}")
        return cls(good_to_bad, bad_to_good, loss_in_good, loss_in_bad)

    @property
    def mean_loss(self) -> float:
        """Share of all frames that are lost."""
        share_bad = self.good_to_bad / (self.good_to_bad + self.bad_to_good)
        return share_bad * self.loss_in_bad + (1 - share_bad) * self.loss_in_good
