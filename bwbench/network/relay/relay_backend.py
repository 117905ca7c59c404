"""Back end ``relay``: a user-space process passes every frame on when the link would have. Needs no kernel module."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import select
import signal
import time
import traceback
from typing import ClassVar, Literal

from bwbench.base.die_with_parent import die_with_parent
from bwbench.base.errors import ConfigError, LinkError
from bwbench.base.plain_data import JsonObject
from bwbench.base.units import MEMORY
from bwbench.network.backend_choice import super_packet_bytes
from bwbench.network.link import Link
from bwbench.network.link.trace_file import load_trace
from bwbench.network.namespaces import isolation
from bwbench.network.namespaces.backend import AbstractBackend, WireCounters
from bwbench.network.relay.frame_headers import FrameHeaders
from bwbench.network.relay.managed import ManagedSchedule
from bwbench.network.relay.port import RelayPort, charge, mac_bytes, slot_bytes_for
from bwbench.network.relay.relay_loop import Relay
from bwbench.network.relay.routed import RoutedSchedule
from bwbench.network.relay.schedule import AbstractSchedule, RelayModel, applied_relay
from bwbench.network.relay.shared_air import SharedSchedule
from bwbench.network.relay.shared_memory import Playback, RelayStatistics
from bwbench.network.relay.switched import SwitchedSchedule

START_LIMIT_S = 20.0
_TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
STOP_LIMIT_S = 5.0
_RINGS_BYTES = 64 << 20  # of all ports together
_SLOTS = (32, 2048)  # fewest and most of a port
# For tests: makes the relay carry something else than it was asked for, and says so nowhere, so that a test can see
# that the probe alone tells what was achieved. "rate=0.1" is a tenth of the rate, "latency=10" ten times the latency.
FAULT_VARIABLE = "BWBENCH_RELAY_FAULT"


class RelayBackend(AbstractBackend):
    """Runs the relay as a process of its own, forked from the agent; they share the statistics' memory."""

    name: ClassVar[Literal["relay"]] = "relay"
    _pid: int | None = None
    _ended_cpu_s: float | None = None
    _super_packet_bytes: int | None = None  # as the nodes were told when the link was made

    def start(self) -> None:
        """Fork the relay and wait until it has all ports open.

        Raises LinkError with its reason where it cannot, ConfigError where a trace cannot be read.
        """
        model = RelayModel.of(self.link, len(self.ports), load_trace)
        self._super_packet_bytes = super_packet_bytes(self.link, len(self.ports))
        self._statistics = RelayStatistics(len(self.ports))
        self._playback = Playback()
        ready_read, ready_write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(ready_read)
            self._run(model, ready_write)
        os.close(ready_write)
        with open(ready_read, "rb") as ready:
            waited, _, _ = select.select([ready], [], [], START_LIMIT_S)
            message = ready.read().decode(errors="replace") if waited else "it was not ready in time"
        verdict, _, priority = message.partition(": ")
        if verdict != "ready":
            self.stop()
            raise LinkError(f"the relay cannot start: {message or 'it ended'}")
        self.applied = applied_relay(model, priority)

    def stop(self) -> None:
        """End the relay's process."""
        if self._pid is None:
            return
        self._ended_cpu_s = self._cpu_s()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        deadline_s = time.monotonic() + STOP_LIMIT_S
        with contextlib.suppress(ChildProcessError):  # the agent has reaped it
            while os.waitpid(self._pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline_s:
                time.sleep(0.001)
        self._pid = None

    def counters(self) -> WireCounters:
        """See the base class; acknowledgements apart, super-packets with the headers of each segment."""
        return self._statistics.counters()

    def health(self) -> JsonObject:
        """See the base class; ``RelayStatistics.lateness`` with it."""
        alive = self._pid is not None
        try:
            os.kill(self._pid or 0, 0)
        except ProcessLookupError:
            alive = False
        figures = {**self._statistics.lateness(), "cpu_s": self._cpu_s(), "drops": self.counters().total().drops}
        return {"backend": self.name, "alive": alive, **figures}

    def play(self, at_s: float | None) -> None:
        """See the base class; the relay reckons from the moment of this call, whenever it notices."""
        self._playback.play(at_s)

    def change(self, link: Link) -> None:
        """See the base class; the relay obeys within milliseconds.

        Raises ConfigError where packets would have to be smaller than the nodes were told at first.
        """
        self._check_packets(link)
        model = RelayModel.of(link, len(self.ports), load_trace)
        self._playback.change(pickle.dumps(self._faulty(model)))
        self.link = link
        self.applied = {**self.applied, **applied_relay(model, str(self.applied["priority"]))}

    def _check_packets(self, link: Link) -> None:
        """Raise ConfigError where super-packets are larger than they may be on ``link``: nodes keep what they have."""
        made = self._super_packet_bytes
        asked = super_packet_bytes(link, len(self.ports))
        if made is None or (asked is not None and asked >= made):
            return
        most = "one by one" if asked is None else f"as super-packets of at most {MEMORY.format(asked)}"
        raise ConfigError(
            f"this link began with super-packets of up to {MEMORY.format(made)}, and as it would be now packets have "
            f"to go {most}; make it anew with these keys, or begin with the slowest rate (or the loss or jitter) that "
            "it is to have, and change it to faster ones from there"
        )

    def _cpu_s(self) -> float | None:
        """CPU time of the relay's process; None once that cannot be known."""
        if self._pid is None:
            return self._ended_cpu_s
        try:
            return time.clock_gettime(~self._pid << 3 | 2)  # the clock of a process, as clock_getcpuclockid makes it
        except OSError:
            return None

    def _run(self, model: RelayModel, ready: int) -> None:
        """In the forked child: be the relay. Never returns."""
        try:
            die_with_parent()
            isolation.set_process_name("bwbench-relay")
            signal.set_wakeup_fd(-1)
            largest_bytes = self._super_packet_bytes or self.link.full_frame.num_bytes
            slot_bytes = slot_bytes_for(largest_bytes)
            fewest, most = _SLOTS
            num_slots = min(most, max(fewest, _RINGS_BYTES // slot_bytes // len(self.ports)))
            ports = [RelayPort(port.interface, slot_bytes, num_slots) for port in self.ports]
            macs = [mac_bytes(port.mac) for port in self.ports]
            schedule = self._schedule(model)
            relay = Relay(ports, macs, schedule, self._statistics, self._playback, largest_bytes)
        except OSError as error:
            advice = "; ask for fewer nodes, or raise 'ulimit -n'" if error.errno in _TOO_MANY_FILES else ""
            os.write(ready, f"{error.strerror}{advice}".encode())
            os._exit(1)
        except BaseException as error:
            os.write(ready, f"{type(error).__name__}: {error}".encode())
            os._exit(1)
        os.write(ready, f"ready: {relay.priority.name}".encode())
        os.close(ready)
        try:
            relay.run()
        except BaseException:
            traceback.print_exc()  # into the agent's stderr, whose end the parent shows
        finally:
            os._exit(1)

    def _schedule(self, model: RelayModel) -> AbstractSchedule[bytes]:
        """What the relay obeys."""
        model = self._faulty(model)
        lost = self._statistics.lost

        def on_drop(src: int, dst: int, frame: bytes, *, entered: bool) -> None:
            frames, num_bytes, is_ack = charge(frame)
            lost(src, dst, frames, num_bytes, is_ack=is_ack, entered=entered)

        headers = FrameHeaders(model.link.seed)
        if model.air is not None:
            return SharedSchedule(model, on_drop, headers)
        if model.sites is not None:
            return RoutedSchedule(model, on_drop)
        if model.is_managed:
            return ManagedSchedule(model, on_drop, headers)
        return SwitchedSchedule(model, on_drop)

    def _faulty(self, model: RelayModel) -> RelayModel:
        """The model with the multipliers of BWBENCH_RELAY_FAULT."""
        parts = (part.partition("=") for part in os.environ.get(FAULT_VARIABLE, "").split(",") if part)
        factors = {key: float(factor) for key, _, factor in parts}
        return model.with_fault(**factors) if factors else model
