"""What a radio's network does by itself while the link plays: hand-overs to other paths, rates that follow demand.

These are declarations; ``relay/delays.py`` and ``relay/switched.py`` do what they say.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bwbench.base.explain import refused
from bwbench.base.units import Duration, PositiveDuration, PositiveShare, Probability
from bwbench.network.link.variation import NodeNumbers


class HandOver(BaseModel):
    """Every so often each node gets a new path, as a dish of Starlink does every 15 s (Huston 2024), all at once.

    Attributes:
        every_s: from one hand-over to the next; the first is so long after the link has begun to play.
        spread_s: the latency of each path lies so far around the link's at most, each as likely.
        extra_s: what a frame takes longer at a hand-over.
        lasts_s: so long that is so.
        loss: share of the frames that are lost then.
        nodes: that are handed over; None is all. A path between two nodes takes half of each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    every_s: PositiveDuration = Field(15.0, alias="every")
    spread_s: Duration = Field(0.0, alias="spread")
    extra_s: Duration = Field(0.0, alias="extra")
    lasts_s: PositiveDuration = Field(0.2, alias="lasts")
    loss: Probability = 0.0
    nodes: NodeNumbers | None = None

    @model_validator(mode="after")
    def _consistent(self) -> HandOver:
        if self.lasts_s >= self.every_s:
            raise refused("a hand-over that lasts as long as from one to the next never ends; make 'lasts' shorter")
        if not (self.spread_s or self.extra_s or self.loss):
            raise refused("a hand-over without 'spread', 'extra' or 'loss' changes nothing; say what it does")
        return self

    def dilated(self, factor: float) -> HandOver:
        """The same where time runs ``factor`` times slower."""
        times = {name: getattr(self, name) * factor for name in ("every_s", "spread_s", "extra_s", "lasts_s")}
        return self.model_copy(update=times)


class Demand(BaseModel):
    """Rates that grow with what is sent, as a base station grants them; both directions of every node.

    A burst after a silence begins with the least share of the rate; a transfer that goes on comes to all of it.

    Attributes:
        least: share of the rate after a silence.
        rise_s: so long something has to be sent until the whole rate is there.
        fall_s: so long nothing until the least share is left.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    least: PositiveShare
    rise_s: PositiveDuration = Field(0.2, alias="rise")
    fall_s: PositiveDuration = Field(0.5, alias="fall")

    def dilated(self, factor: float) -> Demand:
        """The same where time runs ``factor`` times slower."""
        return self.model_copy(update={"rise_s": self.rise_s * factor, "fall_s": self.fall_s * factor})
