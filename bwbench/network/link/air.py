"""What one half-duplex air carries: rates on the air, what the MAC leaves of them, and who gets how much of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from bwbench.network.link.frame_sizes import ETHERNET_FRAME_BYTES

Standard = Literal["802.11g", "802.11n", "802.11ac", "802.11ax"]
Fairness = Literal["packet", "airtime"]


@dataclass(frozen=True)
class MacDefaults:
    """Defaults of a standard.

    Attributes:
        efficiency: share of the PHY rate that full frames get while one station sends alone.
        aggregation: frames of one transmission.
    """

    efficiency: float
    aggregation: int


# Efficiencies: about half of the PHY rate before 802.11n, which sends every frame by itself (54 Mbit/s give 22-25 of
# TCP), 65-70 % at best with the A-MPDU aggregation that came with 802.11n (Perahia and Stacey, Next Generation Wireless
# LANs, 2nd ed., chapters 1 and 8). In real life it is 33-50 %: then say so.
# Aggregation: an A-MPDU holds at most 65,535 B in 802.11n (43 full frames); a block acknowledgement covers 64 frames
# until 802.11ac, 256 in 802.11ax. Drivers keep transmissions short, which leaves half of that at usual rates.
STANDARDS: dict[Standard | None, MacDefaults] = {
    None: MacDefaults(1.0, 1),
    "802.11g": MacDefaults(0.50, 1),
    "802.11n": MacDefaults(0.65, 20),
    "802.11ac": MacDefaults(0.68, 32),
    "802.11ax": MacDefaults(0.70, 64),
}

LONGEST_TRANSMISSION_S = 5.484e-3  # aPPDUMaxTime of IEEE 802.11n and later: slow stations aggregate fewer frames
_ROUNDING = 1 + 1e-9  # a link in slow motion fits as many frames, however its rates and times are rounded


@dataclass(frozen=True)
class Air:
    """The shared medium in numbers. A transmission takes ``overhead_s`` and then its frames at the station's PHY rate.

    Attributes:
        efficiency: share of the link's PHY rate that full aggregates of full frames get.
        aggregation: most frames of one transmission; they all go to the same station.
        fairness: ``packet`` gives every transmitter the same number of transmissions, as the distributed coordination
            function does (Heusse et al., Performance anomaly of 802.11b, INFOCOM 2003); ``airtime`` the same time.
        overhead_s: what contention, preambles and acknowledgements of one transmission take.
        wired: nodes that are wired to the access point: their frames cross the air once, or not at all among them.
        frame_bytes: of a full frame.
        longest_s: of what the frames of one transmission may take, without its overhead; one frame is always allowed.
    """

    efficiency: float
    aggregation: int
    fairness: Fairness
    overhead_s: float
    wired: frozenset[int] = frozenset()
    frame_bytes: int = ETHERNET_FRAME_BYTES
    longest_s: float = LONGEST_TRANSMISSION_S

    @classmethod
    def of(
        cls,
        phy_bps: float,
        efficiency: float,
        aggregation: int,
        fairness: Fairness,
        wired: frozenset[int],
        frame_bytes: int,
    ) -> Air:
        """The overhead makes full aggregates at ``phy_bps`` reach ``efficiency``; it is the same at other rates."""
        bare = cls(efficiency, aggregation, fairness, 0.0, wired, frame_bytes)
        return replace(bare, overhead_s=bare.full_s(phy_bps) * (1 / efficiency - 1))

    def most_frames(self, phy_bps: float) -> int:
        """Full frames in the longest transmission at this PHY rate; one is always allowed."""
        fitting = int(self.longest_s * phy_bps / (self.frame_bytes * 8) * _ROUNDING)
        return max(1, min(self.aggregation, fitting))

    def longest_share(self, phy_bps: float) -> float:
        """How many times the airtime of a station at ``phy_bps`` one that is however slow gets under packet fairness.

        Infinite without aggregation, where a frame takes what it takes: there one slow station slows all others down.
        Else the slow one aggregates fewer frames, and is nearly as short on the air.
        """
        if self.aggregation == 1:
            return float("inf")
        return (self.overhead_s + self.longest_s) / self.full_s(phy_bps)

    def full_s(self, phy_bps: float) -> float:
        """Airtime of a transmission of ``most_frames`` full frames."""
        return self.transmission_s(self.most_frames(phy_bps) * self.frame_bytes, phy_bps)

    def transmission_s(self, num_bytes: float, phy_bps: float) -> float:
        """Airtime of one transmission of ``num_bytes`` of Ethernet frames."""
        return self.overhead_s + num_bytes * 8 / phy_bps

    def capacity_bps(self, phy_bps: float) -> float:
        """Bits of full frames per second while one station with this PHY rate sends full aggregates alone."""
        return self.most_frames(phy_bps) * self.frame_bytes * 8 / self.full_s(phy_bps)

    def frame_s(self, num_bytes: float, phy_bps: float) -> float:
        """Airtime of a frame that shares the overhead of a full transmission with others.

        Our reading of why TCP's are full, up and down: what the access point passes on in one transmission is
        acknowledged in one, and sent on in one, so that few stations contend at a time. Where senders do not wait for
        receivers, packet fairness starves the access point.
        """
        return self.overhead_s / self.most_frames(phy_bps) + num_bytes * 8 / phy_bps
