"""Times in which a node's link is dead."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.base.units import DURATION, Duration, PositiveDuration
from bwbench.network.link.node_number import NodeNumbers


class Outage(BaseModel):
    """From ``at`` on, for ``duration``, every frame from and to the nodes is lost, counted from the start of training.

    Attributes:
        at_s: when it begins.
        duration_s: how long it lasts.
        every_s: from one beginning to the next; None happens once.
        nodes: whose link is dead; None is everyone's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    at_s: Duration = Field(alias="at")
    duration_s: PositiveDuration = Field(alias="duration")
    every_s: PositiveDuration | None = Field(None, alias="every")
    nodes: NodeNumbers | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Outage:
        if self.every_s is not None and self.every_s <= self.duration_s:
            text = (
                f"an outage of {DURATION.format(self.duration_s)} every {DURATION.format(self.every_s)} never ends; "
                "'every' must be longer than 'duration'"
            )
            raise PydanticCustomError("link", "{message}", {"message": text})
        return self

    def is_dead(self, time_s: float) -> bool:
        """Whether the link is dead ``time_s`` after the start."""
        since_s = time_s - self.at_s
        if since_s < 0:
            return False
        into_s: float = since_s if self.every_s is None else since_s % self.every_s
        return bool(into_s < self.duration_s)
