"""What others send over a node's link meanwhile: declarations. ``relay/cross_traffic.py`` generates it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bwbench.base.explain import refused
from bwbench.base.units import Bandwidth, Memory, Period, PositiveDuration, PositiveShare
from bwbench.network.link.variation import NodeNumbers

Kind = Literal["share", "upload", "download", "video", "web"]
_OF_KIND: dict[str, tuple[str, ...]] = {
    "share": ("share",),
    "upload": ("connections",),
    "download": ("connections",),
    "video": ("rate", "segment"),
    "web": ("connections", "page", "pause"),
}
# What is usual. A page: the median of desktop pages in July 2024 was 2.65 MB (HTTP Archive, Web Almanac 2024). Browsers
# open six connections a host. A video of 5 Mbit/s is one of 1080p, in segments of 4 s (Apple's and DASH's advice: 2 to
# 10 s).
_LEAST_LEFT = 0.01  # of a rate: others may ask for all of it, and a time stays a number
_USUAL: dict[str, dict[str, object]] = {
    "share": {},
    "upload": {"connections": 1},
    "download": {"connections": 1},
    "video": {"rate": "5 Mbit/s", "segment": "4 s"},
    "web": {"connections": 6, "page": "2.65 MB", "pause": "10 s"},
}


class CrossTraffic(BaseModel):
    """One thing that somebody else does over the link of each of some nodes, while the link plays.

    Attributes:
        kind: ``share``, packets at random distances that take a share of the rate and never give way; ``upload`` and
            ``download``, TCP connections that send for ever; ``video``, segments one after another; ``web``, pages with
            pauses in which they are read.
        direction: of the node's link: ``up`` for an upload, else ``down``, where nothing else is said.
        nodes: whose link; None is everyone's.
        share: of the rate in that direction.
        connections: how many at the same time.
        rate_bps, segment_s: of the video.
        page_bytes, pause_s: means of what is fetched, and of the time until the next page.
        rtt_s: round trip of a connection, without what it waits in the queue here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Kind
    direction: Literal["up", "down"] | None = None
    nodes: NodeNumbers | None = None
    share: PositiveShare | None = None
    connections: Annotated[int, Field(ge=1, le=64)] | None = None
    rate_bps: Bandwidth | None = Field(None, alias="rate")
    segment_s: Period | None = Field(None, alias="segment")
    page_bytes: Memory | None = Field(None, alias="page")
    pause_s: PositiveDuration | None = Field(None, alias="pause")
    rtt_s: Period = Field(0.03, alias="rtt")

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, value: object) -> object:
        """A mere name, and what is usual of its kind: it is written down, so that another usual is another cell."""
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            return value
        usual = {"direction": "up" if value["kind"] == "upload" else "down", **_USUAL.get(value["kind"], {})}
        return {**usual, **{key: own for key, own in value.items() if own is not None}}

    @model_validator(mode="after")
    def _consistent(self) -> CrossTraffic:
        given = self.model_dump(by_alias=True, exclude_none=True)
        all_keys = {key for keys in _OF_KIND.values() for key in keys}
        for key in sorted(all_keys & given.keys() - {*_OF_KIND[self.kind]}):
            raise refused(f"{key!r} says nothing of '{self.kind}', which takes {', '.join(_OF_KIND[self.kind])}")
        if self.kind == "share" and self.share is None:
            raise refused("cross traffic of kind 'share' says how much of the rate it takes: 'share: 30 %'")
        return self

    def dilated(self, factor: float) -> CrossTraffic:
        """The same where time runs ``factor`` times slower."""
        return self.model_copy(
            update={
                "rate_bps": self.rate_bps and self.rate_bps / factor,
                "segment_s": self.segment_s and self.segment_s * factor,
                "pause_s": self.pause_s and self.pause_s * factor,
                "rtt_s": self.rtt_s * factor,
            }
        )

    def concerns(self, node: int, direction: str) -> bool:
        """Whether it is on that direction of this node's link."""
        return self.direction == direction and (self.nodes is None or node in self.nodes)

    @property
    def has_mean(self) -> bool:
        """Whether its mean rate is told; connections that send for ever take what they get beside others."""
        return self.kind in ("share", "video", "web")

    def mean_bps(self, rate_bps: float) -> float:
        """What it sends in mean on a link of that rate; 0 where that is not told.

        Pages are fetched as fast as the link goes, which is the most that they come to.
        """
        if self.share is not None:
            return float(self.share * rate_bps)
        if self.page_bytes is not None and self.pause_s is not None:
            page_bits = 8 * self.page_bytes
            return float(page_bits / (self.pause_s + page_bits / rate_bps))
        return float(self.rate_bps or 0.0)


def left_bps(traffic: Iterable[CrossTraffic], node: int, direction: str, rate_bps: float) -> float:
    """What is left in mean of that rate in one direction of a node's link, as far as means are told.

    What others send over TCP gives way: that takes half of what packets leave which never do, at most.
    """
    here = [one for one in traffic if one.concerns(node, direction)]
    giving_way = sum(one.mean_bps(rate_bps) for one in here if one.share is None)
    left = max(_LEAST_LEFT * rate_bps, rate_bps - sum(one.mean_bps(rate_bps) for one in here if one.share is not None))
    return left - min(giving_way, left / 2)
