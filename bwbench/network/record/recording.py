"""This side of a recording: round trips first, then a load in each direction, a second at a time.

Against a listener of ours, or against an iperf3 server, for hosts on which no bwbench can run. It leaves traces in the
``wifi`` format with remarks on top.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bwbench.base.errors import ConfigError, LinkError, UnfitMachineError
from bwbench.base.units import BANDWIDTH, DURATION, rounded
from bwbench.network.record import record_session as session
from bwbench.network.record.record_session import MAX_SECONDS

Direction = Literal["up", "down", "both"]
DIRECTIONS = ("up", "down", "both")
OnSecond = Callable[[str, int, float], None]
"""Called as each second is over: direction, number of the second from 0 on, goodput in bit/s."""


@dataclass(frozen=True)
class Recorded:
    """One direction.

    Attributes:
        direction: ``up`` from this host to the other one, ``down`` from there to here.
        path: the trace file.
        goodput_bps: TCP goodput of each second.
    """

    direction: str
    path: Path
    goodput_bps: tuple[float, ...]

    @property
    def mean_bps(self) -> float:
        """Mean goodput."""
        return statistics.fmean(self.goodput_bps)

    @property
    def coefficient_of_variation(self) -> float:
        """Standard deviation over mean of the seconds; 0 where nothing came through."""
        return statistics.pstdev(self.goodput_bps) / self.mean_bps if self.mean_bps else 0.0


@dataclass(frozen=True)
class RecordSummary:
    """All that was measured.

    Attributes:
        to: the other side, as host:port.
        recorded: the directions, in the order in which they were measured, one after the other.
        idle_rtt_s: round trips of small messages before any load.
        loaded_rtt_s: the same during the load; what they have more is the queue on the way.
        congestion_control: of this host's TCP.
    """

    to: str
    recorded: tuple[Recorded, ...]
    idle_rtt_s: tuple[float, ...] = ()
    loaded_rtt_s: tuple[float, ...] = ()
    congestion_control: str = ""

    def link(self) -> dict[str, object]:
        """Keys of a link that behaves like this: the traces, and half of the idle round trip as its latency."""
        traces = {one.direction: {"file": str(one.path)} for one in self.recorded}
        link: dict[str, object] = {"trace": traces}
        if len(self.recorded) == 1:
            link["trace"] = {"file": str(self.recorded[0].path)}
        if self.idle_rtt_s:
            link["latency"] = DURATION.format(round(statistics.median(self.idle_rtt_s) / 2, 6))
        return link


def rtt_words(samples_s: Sequence[float]) -> str:
    """``median 2.1 ms, 95 % below 4 ms (20 samples)``, or that there is none."""
    if not samples_s:
        return "not measured"
    ordered = sorted(samples_s)
    high = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    middle_ms, high_ms = statistics.median(ordered) * 1e3, high * 1e3
    return f"median {rounded(middle_ms, 3)} ms, 95 % below {rounded(high_ms, 3)} ms ({len(ordered)} samples)"


def whole_seconds(duration_s: float) -> int:
    """The seconds of a recording; raises ConfigError where they are not whole, none, or more than a day."""
    if not (1 <= duration_s <= MAX_SECONDS and duration_s == int(duration_s)):
        raise ConfigError(f"duration: {duration_s:g} s is out of range: whole seconds, 1 to {MAX_SECONDS}")
    return int(duration_s)


def trace_paths(out_path: Path, direction: str) -> dict[str, Path]:
    """File of each direction: ``out_path``, or for both ``home.up.tsv`` and ``home.down.tsv``.

    Raises:
        ConfigError: the direction is unknown, the folder is not there, or a file is there already.
    """
    if direction not in DIRECTIONS:
        raise ConfigError(f"direction: {direction!r} is not allowed; allowed: {', '.join(DIRECTIONS)}")
    if direction == "both":
        paths = {one: out_path.with_name(f"{out_path.stem}.{one}{out_path.suffix}") for one in ("down", "up")}
    else:
        paths = {direction: out_path}
    for path in paths.values():
        if not path.parent.is_dir():
            raise ConfigError(f"{path}: there is no folder {path.parent}; make it first")
        if path.exists():
            raise ConfigError(f"{path} is there already; name another file, a recording is never overwritten")
        if not os.access(path.parent, os.W_OK):
            raise ConfigError(f"{path}: no right to write in {path.parent}; name a file elsewhere")
    return paths


def write_trace(summary: RecordSummary, started: str, how: str) -> None:
    """The file of what was recorded last: ``seconds<TAB>Mbit/s`` lines behind ``# key: value`` lines.

    It is complete or not there. Raises ConfigError.

    Args:
        started: when.
        how: by what, or how much of it.
    """
    last = summary.recorded[-1]
    sense = "from this host to the other" if last.direction == "up" else "from the other host to this one"
    remarks = {
        "recorded": f"{started} by bwbench link record, {how}",
        "direction": f"{last.direction} ({sense}: {summary.to})",
        "measures": f"TCP goodput of each second, {summary.congestion_control or 'unknown congestion control'}",
        "mean": BANDWIDTH.show(last.mean_bps, 4),
        "idle round trip": rtt_words(summary.idle_rtt_s),
        "round trip under load": rtt_words(summary.loaded_rtt_s),
    }
    lines = [f"# {key}: {value}\n" for key, value in remarks.items()]
    lines += [f"{second}.0\t{value / 1e6:.6g}\n" for second, value in enumerate(last.goodput_bps)]
    path = last.path
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_text("".join(lines))
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


CONNECT_S = 10.0
NUM_IDLE_PINGS, BETWEEN_IDLE_PINGS_S = 20, 0.05
BETWEEN_LOADED_PINGS_S = 0.25
LONGEST_PING_S = 10.0
_GRACE_S = 30.0  # beyond the seconds asked for, before a transfer (or iperf3) counts as failed


def record(
    to: str,
    port: int,
    duration_s: float,
    direction: str,
    out_path: Path,
    on_second: OnSecond,
    *,
    token: str = "",
    bind: str = "",
) -> RecordSummary:
    """Measure the network to a host on which ``bwbench link record --listen`` runs, into trace files.

    Both directions are measured one after the other (down first), so that they do not take from each other.

    Args:
        to: name or address of the other host.
        port: on which it listens.
        duration_s: whole seconds of each direction, 1 to a day.
        direction: ``up`` from this host, ``down`` to it, or ``both``.
        out_path: trace file; ``both`` writes ``NAME.up.EXT`` and ``NAME.down.EXT``. Never overwritten.
        on_second: called as each second is over with the direction, its number and its goodput in bit/s.
        token: that the listener asks for.
        bind: address of this host to measure from; empty leaves it to the kernel.

    Raises:
        ConfigError: a value is out of range, a name is unknown, a file cannot be written, the token is wrong.
        LinkError: nobody listens there, or the connection failed. What was measured of a direction until then is kept.
    """
    seconds = whole_seconds(duration_s)
    paths = trace_paths(out_path, direction)
    started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    where = f"{to}:{port}"
    client = _Client(to, port, token, bind)
    idle_s = client.idle_round_trips()
    recorded: list[Recorded] = []
    loaded_s: list[float] = []
    for one, path in paths.items():
        goodput_bps: list[float] = []
        failure = None
        try:
            with client.loaded_round_trips(seconds, loaded_s):
                client.transfer(one, seconds, goodput_bps, on_second)
        except (OSError, session.HandshakeError) as error:
            failure = f"{where}: {one} failed after {len(goodput_bps)} of {seconds} s: {error}"
        finally:  # an interrupted recording is kept as well
            if any(goodput_bps):
                recorded.append(Recorded(one, path, tuple(goodput_bps)))
                summary = RecordSummary(where, tuple(recorded), idle_s, tuple(loaded_s), client.congestion_control)
                write_trace(summary, started, f"{len(goodput_bps)} s of {seconds} s")
        if failure is not None:
            raise LinkError(failure + (f"; the seconds until then are in {path}" if any(goodput_bps) else ""))
        if not any(goodput_bps):
            raise LinkError(f"{where}: nothing came through {one} in {seconds} s; is a firewall in between?")
    return summary


class _Client:
    def __init__(self, to: str, port: int, token: str, bind: str) -> None:
        session.check_port(port)
        if not to.strip():
            raise ConfigError("to: the other host is missing; give its name or address")
        session.check_token(token)
        self._to, self._port, self._token, self._bind = to, port, token, bind
        self.congestion_control = ""

    def idle_round_trips(self) -> tuple[float, ...]:
        """Round trips without load; the first contact, so that its errors say what to do."""
        port = "" if self._port == session.DEFAULT_PORT else f" --port {self._port}"
        start = f"start the other side there first: bwbench link record --listen{port}"
        where = f"{self._to}:{self._port}"
        try:
            with self._open("echo", 60) as connection:
                times_s = []
                for _ in range(NUM_IDLE_PINGS):
                    times_s.append(session.ping(connection, LONGEST_PING_S))
                    time.sleep(BETWEEN_IDLE_PINGS_S)
                return tuple(times_s)
        except socket.gaierror as error:
            raise ConfigError(f"{self._to!r} is no known host: {error.strerror}; give a name or an address") from None
        except ConnectionRefusedError:
            raise LinkError(f"{where} refused the connection; {start}") from None
        except TimeoutError:
            text = f"{where} does not answer within {CONNECT_S:g} s; is it up, and the port open in its firewall?"
            raise LinkError(f"{text} If so, {start}") from None
        except session.HandshakeError as error:
            kind = ConfigError if "token" in str(error) else LinkError
            raise kind(f"{where}: {error}") from None
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise LinkError(f"{where} cannot be reached: {reason}; {start}") from None

    def transfer(self, direction: str, seconds: int, goodput_bps: list[float], on_second: OnSecond) -> None:
        """Load one direction; ``goodput_bps`` grows by the second."""

        def count(second: int, value_bps: float) -> None:
            goodput_bps.append(value_bps)
            on_second(direction, second, value_bps)

        def on_line(line: str) -> bool:
            if line == "done":
                return True
            second, _, value = line.partition(" ")
            if not (second.isdecimal() and value.isdecimal()) or int(second) != len(goodput_bps):
                raise ConnectionError(f"{line[:40]!r} came back where the count of a second was due")
            count(int(second), float(value))
            return False

        with self._open(direction, seconds) as connection:
            if direction == "down":
                session.receive(connection, seconds, count)
                return
            session.send(connection, session.WARM_UP_S + seconds + _GRACE_S, on_line)
            if len(goodput_bps) < seconds:
                raise ConnectionResetError("the other side closed the connection")

    @contextlib.contextmanager
    def loaded_round_trips(self, seconds: int, times_s: list[float]) -> Iterator[None]:
        """Round trips on a connection of their own while the block runs."""
        stop = threading.Event()

        def measure(connection: socket.socket) -> None:
            with contextlib.suppress(OSError):  # the load tells of a broken network; these are by the way
                while not stop.wait(BETWEEN_LOADED_PINGS_S):
                    times_s.append(session.ping(connection, LONGEST_PING_S))

        with self._open("echo", min(seconds + 60, session.MAX_SECONDS)) as connection:
            thread = threading.Thread(target=measure, args=(connection,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                stop.set()
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                thread.join(LONGEST_PING_S)

    def _open(self, mode: str, seconds: int) -> socket.socket:
        source = (self._bind, 0) if self._bind else None
        connection = socket.create_connection((self._to, self._port), CONNECT_S, source)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            self.congestion_control = name.split(b"\0")[0].decode("ascii", "replace")
            connection.settimeout(session.HANDSHAKE_S)
            connection.sendall(f"{session.MAGIC} {mode} {seconds} {self._token}".strip().encode() + b"\n")
            answer = session.read_line(connection, session.HANDSHAKE_S)
            if answer != f"{session.MAGIC} ok":
                refusal = answer.removeprefix(f"{session.MAGIC} no: ")
                unknown = f"it answers {answer[:40]!r}: no bwbench listens there"
                raise session.HandshakeError(refusal if refusal != answer else unknown)
        except BaseException:
            connection.close()
            raise
        return connection


IPERF3_PORT = 5201


def record_with_iperf3(
    to: str, port: int, duration_s: float, direction: str, out_path: Path, on_second: OnSecond, *, bind: str = ""
) -> RecordSummary:
    """As ``record``, with an iperf3 client here and ``iperf3 --server`` there; seconds come when a direction is over.

    Goodput is what iperf3 prints for each second: of the receiver going down, of the sender (which may run ahead by
    its buffer) going up.

    Raises:
        ConfigError: a value is out of range, or a file cannot be written.
        UnfitMachineError: iperf3 is not installed.
        LinkError: iperf3 failed; its own words follow.
    """
    seconds = whole_seconds(duration_s)
    session.check_port(port)
    paths = trace_paths(out_path, direction)
    program = shutil.which("iperf3")
    if program is None:
        raise UnfitMachineError(
            "iperf3 is not installed here; install it, or record without it (bwbench on both hosts)"
        )
    started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    recorded: list[Recorded] = []
    for one, path in paths.items():
        argv = [program, "--client", to, "--port", str(port), "--time", str(seconds), "--interval", "1", "--json"]
        argv += ["--omit", f"{session.WARM_UP_S:.0f}"]
        argv += ["--reverse"] if one == "down" else []
        argv += ["--bind", bind] if bind else []
        result = _run(argv, seconds + session.WARM_UP_S + _GRACE_S, f"{to}:{port}")
        sums = [interval["sum"] for interval in result["intervals"]]
        counted = [found for found in sums if not found.get("omitted") and found["seconds"] > 0.5]
        goodput_bps = [float(found["bits_per_second"]) for found in counted]
        for second, value_bps in enumerate(goodput_bps):
            on_second(one, second, value_bps)
        recorded.append(Recorded(one, path, tuple(goodput_bps)))
        control = str(result.get("end", {}).get("sender_tcp_congestion", ""))
        summary = RecordSummary(f"{to}:{port}", tuple(recorded), congestion_control=control)
        write_trace(summary, started, "with iperf3")
    return summary


def _run(argv: list[str], limit_s: float, where: str) -> dict[str, Any]:  # iperf3's own words
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise LinkError(f"{where}: iperf3 is not done after {limit_s:g} s; is the network up?") from None
    try:
        result = json.loads(done.stdout)
    except ValueError:
        raise LinkError(f"{where}: iperf3 failed: {(done.stderr or done.stdout).strip()[:200]}") from None
    if "error" in result:
        hint = "; start it there first: iperf3 --server" if "refused" in result["error"] else ""
        raise LinkError(f"{where}: iperf3 failed: {str(result['error'])[:200]}{hint}")
    if not isinstance(result.get("intervals"), list) or not result["intervals"]:
        raise LinkError(f"{where}: iperf3 measured nothing")
    return dict(result)
