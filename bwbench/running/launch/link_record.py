"""link.json of an attempt: what was asked, what was set, and what the probe and the counters saw."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from bwbench.base.errors import RecordError
from bwbench.network.link import Link
from bwbench.network.namespaces.backend import lateness_between
from bwbench.network.network import Network
from bwbench.network.probe.verification import verify
from bwbench.records import read_record, write_record
from bwbench.records.schema import Applied, Emulator, Json, JsonObject, Lateness, LinkRecord, Measurement, Wire
from bwbench.running.launch.attempt import LaunchOutcome

Moment = Literal["achieved_before", "achieved_during", "achieved_after"]
VERIFY_TRIES = 3  # a probe disturbed by something else on the machine is repeated; how often is recorded
LATE_EMULATOR_S = 0.02  # p99 of lateness beyond which frames no longer leave when the link says so …
MOST_LOST_SHARE = 1e-3  # of all frames: what the machine itself may lose beside the loss that was asked
FRAMES_FOR_A_P99 = 1000  # … where there are enough of them for a 99th percentile to mean something


class LinkFile:
    """Written after every step that adds to it, so that a crash leaves what was known by then.

    Attributes:
        record: what it holds.
    """

    def __init__(self, link: Link, attempt: Path) -> None:
        self._link, self._path = link, attempt / "link.json"
        self.record = LinkRecord(
            requested=link.model_dump(mode="json", by_alias=True),
            backend=None,
            backend_reason=None,
            applied=None,
            achieved_before=None,
            achieved_after=None,
            emulator=Emulator(),
            wire=None,
        )

    def add_network(self, network: Network) -> None:
        """Which back end carries the link, why, and with which parameters."""
        applied = Applied.model_validate(network.applied)
        self._update(backend=network.backend, backend_reason=network.backend_reason, applied=applied)

    def add_real_network(self, interfaces: Sequence[str]) -> None:
        """That the workers use a network which nobody here has made: by these interfaces, in the order of the ranks."""
        backend, reason = "none", "the network between the hosts, as it is"
        if self._link.shaped:
            backend, reason = "interface", "the kernels of the hosts shape their interfaces"
        emulator = Emulator(interfaces=tuple(interfaces))
        self._update(backend=backend, backend_reason=reason, applied=None, emulator=emulator)

    def add_applied(self, hosts: Sequence[Json]) -> None:
        """What was applied on each host, as it says itself, in the order of the hosts; None of a silent one."""
        self._update(applied=Applied.model_validate({"hosts": list(hosts)}))

    def add_found(self, when: Moment, measurement: Measurement, clock_s: float | None = None) -> None:
        """What the ranks have found themselves, as field ``when``; of those during the training there may be many.

        Args:
            clock_s: what the training clock stood at; None before it started and after it ended.
        """
        if clock_s is None:
            self._update(**{when: measurement})
            return
        found = measurement.model_copy(update={"clock_s": clock_s})
        earlier = [one for one in self.record.achieved_during if one.clock_s != clock_s]  # the same try again
        self._update(achieved_during=(*earlier, found))

    def add_wire(self, outcome: LaunchOutcome) -> None:
        """What has crossed the network."""
        self._update(wire=_wire(outcome))

    def read_back(self) -> None:
        """Take over what another program has written of this attempt's link."""
        with contextlib.suppress(RecordError):  # of another version; what is known here stands
            self.record = read_record(LinkRecord, self._path) or self.record

    def add_measurement(self, network: Network, when: Moment) -> str | None:
        """Probe the link into field ``when``; returns what is out of tolerance, None where nothing is."""
        rejected: list[list[str]] = []
        for number in range(1, VERIFY_TRIES + 1):
            measured = verify(network, self._link, len(network.nodes))
            content = {**measured.to_json(), "tries": number, "rejected": rejected}
            self._update(**{when: Measurement.model_validate(content)})
            if measured.verdict == "ok":
                return None
            rejected = [*rejected, list(measured.reasons)]
        return "; ".join(measured.reasons)

    def add_traffic(self, network: Network, outcome: LaunchOutcome) -> str | None:
        """How the emulator fared and what crossed it; returns why the emulator was unfit, None where it was fit."""
        emulator = emulator_of(network.health(), outcome.lateness)
        self._update(emulator=emulator, wire=_wire(outcome))
        return emulator_unfit(emulator)

    def _update(self, **fields: object) -> None:
        self.record = self.record.model_copy(update=fields)
        write_record(self._path, self.record)


def emulator_of(health: JsonObject, training: JsonObject | None) -> Emulator:
    """How a back end fared, as the record of a cell has it.

    Args:
        health: as ``Network.health`` gives it.
        training: lateness of the frames that count, as ``lateness_between`` gives it; None where there were none.
    """
    return Emulator.model_validate({**health, "training": training or lateness_between({}, health)})


def emulator_unfit(emulator: Emulator) -> str | None:
    """Why the emulator did not keep up with its link; None where it did."""
    training = emulator.training or Lateness()
    lost_frames = (emulator.overruns or 0) + (emulator.unsent or 0)
    if lost_frames > MOST_LOST_SHARE * max(training.frames, FRAMES_FOR_A_P99):
        return f"the emulator lost {lost_frames} frames that the link would have carried"
    if (late_s := training.p99_s or 0.0) > LATE_EMULATOR_S and training.frames >= FRAMES_FOR_A_P99:
        return f"the emulator was late: 1 % of the frames left more than {late_s * 1e3:.0f} ms after their time"
    return None


def _wire(outcome: LaunchOutcome) -> Wire | None:
    """Bytes per step without acknowledgements, and as a multiple of the payload that the codecs claim."""
    if outcome.wire is None:
        return None
    steps = max((end.step for end in outcome.ends.values()), default=0)
    payload = sum(end.payload_bytes or 0 for end in outcome.ends.values())
    sent = outcome.wire.bytes - (outcome.wire.ack_bytes or 0)
    return Wire(
        steps=steps,
        **dict(outcome.wire),
        per_step_bytes=sent / steps if steps else None,
        payload_bytes=payload,
        ratio=sent / payload if payload else None,
    )
