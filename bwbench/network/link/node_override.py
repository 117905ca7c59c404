"""What is different at one node."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from bwbench.base.units import LinkDelay, LinkRate
from bwbench.network.link.queue import QueueSize
from bwbench.network.link.trace import Traces

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


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
