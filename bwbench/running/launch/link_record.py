"""link.json of an attempt: what was asked, what was set, and what the probe and the counters saw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bwbench.network.link import Link
from bwbench.network.namespaces.backend import lateness_between
from bwbench.network.network import Network
from bwbench.network.probe.verification import verify
from bwbench.records import SCHEMA, read_json, write_json_atomic
from bwbench.running.launch.outcome import LaunchOutcome

VERIFY_TRIES = 3  # a probe disturbed by something else on the machine is repeated; how often is recorded
LATE_EMULATOR_S = 0.02  # p99 of lateness beyond which frames no longer leave when the link says so …
MOST_LOST_SHARE = 1e-3  # of all frames: what the machine itself may lose beside the loss that was asked
FRAMES_FOR_A_P99 = 1000  # … where there are enough of them for a 99th percentile to mean something


class LinkRecord:
    """Written after every step that adds to it, so that a crash leaves what was known by then."""

    def __init__(self, link: Link, attempt: Path) -> None:
        self._link, self._path = link, attempt / "link.json"
        self.content: dict[str, Any] = {
            "schema": SCHEMA,
            "requested": link.model_dump(mode="json", by_alias=True),
            "backend": None,
            "backend_reason": None,
            "applied": None,
            "achieved_before": None,
            "achieved_after": None,
            "emulator": {},
            "wire": None,
        }

    def add_network(self, network: Network) -> None:
        """Which back end carries the link, why, and with which parameters."""
        self._update(backend=network.backend, backend_reason=network.backend_reason, applied=network.applied)

    def add_real_network(self, interfaces: Sequence[str]) -> None:
        """That the workers use a network which nobody here has made: by these interfaces, in the order of the ranks."""
        backend, reason = "none", "the network between the hosts, as it is"
        if self._link.shaped:
            backend, reason = "interface", "the kernels of the hosts shape their interfaces"
        self._update(backend=backend, backend_reason=reason, applied=None, emulator={"interfaces": list(interfaces)})

    def add_applied(self, hosts: Sequence[dict[str, Any] | None]) -> None:
        """What was applied on each host, in the order of the hosts."""
        self._update(applied={"hosts": list(hosts)})

    def add_found(self, when: str, measurement: dict[str, Any], clock_s: float | None = None) -> None:
        """What the ranks have found themselves, as field ``when``; of those during the training there may be many.

        Args:
            clock_s: what the training clock stood at; None before it started and after it ended.
        """
        if clock_s is None:
            self._update(**{when: measurement})
            return
        earlier = [found for found in self.content.get(when, []) if found["clock_s"] != clock_s]  # the same try again
        self._update(**{when: [*earlier, {**measurement, "clock_s": clock_s}]})

    def add_wire(self, outcome: LaunchOutcome) -> None:
        """What has crossed the network."""
        self._update(wire=_wire(outcome))

    def read_back(self) -> None:
        """Take over what another program has written of this attempt's link."""
        found = read_json(self._path)
        if isinstance(found, dict):
            self.content = found

    def add_measurement(self, network: Network, when: str) -> str | None:
        """Probe the link into field ``when``; returns what is out of tolerance, None where nothing is."""
        rejected: list[list[str]] = []
        for number in range(1, VERIFY_TRIES + 1):
            measured = verify(network, self._link, len(network.nodes))
            self._update(**{when: {**measured.to_json(), "tries": number, "rejected": rejected}})
            if measured.verdict == "ok":
                return None
            rejected = [*rejected, list(measured.reasons)]
        return "; ".join(measured.reasons)

    def add_traffic(self, network: Network, outcome: LaunchOutcome) -> str | None:
        """How the emulator fared and what crossed it; returns why the emulator was unfit, None where it was fit."""
        health = network.health()
        lateness = outcome.lateness or lateness_between({}, health)
        self._update(emulator={**health, "training": lateness}, wire=_wire(outcome))
        return emulator_unfit(health, lateness)

    def _update(self, **fields: Any) -> None:
        self.content.update(fields)
        write_json_atomic(self._path, self.content)


def emulator_unfit(health: dict[str, Any], lateness: dict[str, Any]) -> str | None:
    """Why the emulator did not keep up with its link; None where it did.

    Args:
        health: at the end.
        lateness: of the frames that count, as ``lateness_between`` gives it.
    """
    late_s, num_frames = lateness["p99_s"] or 0.0, max(int(lateness["frames"]), FRAMES_FOR_A_P99)
    lost_frames = int(health.get("overruns") or 0) + int(health.get("unsent") or 0)
    if lost_frames > MOST_LOST_SHARE * num_frames:
        return f"the emulator lost {lost_frames} frames that the link would have carried"
    if late_s > LATE_EMULATOR_S and lateness["frames"] >= FRAMES_FOR_A_P99:
        return f"the emulator was late: 1 % of the frames left more than {late_s * 1e3:.0f} ms after their time"
    return None


def _wire(outcome: LaunchOutcome) -> dict[str, Any] | None:
    """Bytes per step without acknowledgements, and as a multiple of the payload that the codecs claim."""
    if outcome.wire is None:
        return None
    steps = max((int(end.get("step", 0)) for end in outcome.ends.values()), default=0)
    payload = sum(int(end.get("payload_bytes", 0)) for end in outcome.ends.values())
    sent = outcome.wire.bytes - (outcome.wire.ack_bytes or 0)
    return {
        "steps": steps,
        "bytes": outcome.wire.bytes,
        "ack_bytes": outcome.wire.ack_bytes,
        "frames": outcome.wire.frames,
        "ack_frames": outcome.wire.ack_frames,
        "drops": outcome.wire.drops,
        "per_step_bytes": sent / steps if steps else None,
        "payload_bytes": payload,
        "ratio": sent / payload if payload else None,
    }
