"""Recording a network over loopback: what is counted, what is kept, and what is said when it fails."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError, LinkError
from bwbench.network.link import Link
from bwbench.network.link.trace_file import freeze_link, read_trace
from bwbench.network.link.variation import Trace
from bwbench.network.record import Listener, listen, record, record_with_iperf3
from bwbench.network.record import record_session as session
from bwbench.network.record import recording as client_module


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(session, "WARM_UP_S", 0.1)
    monkeypatch.setattr(session, "HANDSHAKE_S", 60.0)
    monkeypatch.setattr(client_module, "NUM_IDLE_PINGS", 3)


@contextlib.contextmanager
def listening(token: str = "", events: list[str] | None = None) -> Iterator[int]:
    stop = threading.Event()
    log = [] if events is None else events
    with Listener("127.0.0.1", 0, token) as listener:
        thread = threading.Thread(target=listener.serve, args=(60.0, log.append, stop))
        thread.start()
        try:
            yield listener.port
        finally:
            stop.set()
            thread.join(60)
            assert not thread.is_alive()


@contextlib.contextmanager
def serving(answer) -> Iterator[int]:
    """A port behind which each connection is given to ``answer``."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    connection, _ = server.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            thread.join(5)


def nothing(direction: str, second: int, goodput_bps: float) -> None:
    pass


def test_both_directions_become_traces_that_a_link_can_follow(tmp_path):
    seen, events = [], []
    with listening("s3cret", events) as port:
        args = ("127.0.0.1", port, 1, "both", tmp_path / "home.tsv")
        summary = record(*args, lambda *second: seen.append(second[:2]), token="s3cret", bind="127.0.0.1")
    assert seen == [("down", 0), ("up", 0)]
    assert [event.split(": ")[1] for event in events] == ["down for 1 s", "down done", "up for 1 s", "up done"]
    assert len(summary.idle_rtt_s) == 3 and min(summary.idle_rtt_s) > 0 and summary.loaded_rtt_s
    assert summary.congestion_control
    for one in summary.recorded:
        found = read_trace(Trace(file=str(one.path)))
        assert (found.format, found.measures, found.notes) == ("wifi", "tcp-goodput", ())
        assert found.rates.mean_bps == pytest.approx(one.mean_bps * 1514 / 1448, rel=1e-5)
        assert one.coefficient_of_variation == 0
        text = one.path.read_text()
        assert f"# direction: {one.direction} " in text and "idle round trip: median" in text
    link = freeze_link(Link.model_validate(summary.link()), tmp_path)
    assert link.trace.up.file == str(tmp_path / "home.up.tsv")
    assert link.base.down_bps > 0 and link.latency_s > 0


class Arriving:
    """A connection, and the clock that goes by while it is listened to."""

    def __init__(self, arrivals: list[tuple[float, int]]) -> None:
        self.now_s, self._arrivals, self._limit_s = 0.0, arrivals, 0.0

    def monotonic(self) -> float:
        return self.now_s

    def settimeout(self, limit_s: float) -> None:
        self._limit_s = limit_s

    def recv_into(self, buffer: bytearray) -> int:
        if not self._arrivals or self._arrivals[0][0] > self.now_s + self._limit_s:
            self.now_s += self._limit_s
            raise TimeoutError
        self.now_s, num_bytes = self._arrivals.pop(0)
        return num_bytes


def test_seconds_in_which_nothing_arrives_are_zeros(monkeypatch):
    seen: list[float] = []
    connection = Arriving([(0.05, 70_000), (0.3, 60_000), (0.4, 40_000), (2.4, 50_000)])
    monkeypatch.setattr(session, "time", connection)
    session.receive(connection, 3, lambda second, goodput_bps: seen.append(goodput_bps))
    assert seen == [800_000, 0, 400_000]


def test_what_was_measured_before_a_break_is_kept(tmp_path):
    seen: list[int] = []

    def break_off(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            mode = session.read_line(connection, 2).split()[1]
            connection.sendall(f"{session.MAGIC} ok\n".encode())
            if mode == "echo":
                session.echo(connection, 10)
            else:
                while not seen:
                    connection.sendall(bytes(1000))
                    time.sleep(0.01)

    path = tmp_path / "broken.tsv"
    with serving(break_off) as port, pytest.raises(LinkError) as caught:
        record("127.0.0.1", port, 30, "down", path, lambda direction, second, goodput_bps: seen.append(second))
    assert f"down failed after {len(seen)} of 30 s" in str(caught.value) and str(path) in str(caught.value)
    assert read_trace(Trace(file=str(path))).rates.duration_s == len(seen) == 1 + seen[-1]
    assert f"{len(seen)} s of 30 s" in path.read_text()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"token": "wrong"}, ConfigError, ["wrong token", "--token"]),
        ({"token": "two words"}, ConfigError, ["token", "letters and digits"]),
        ({"to": "256.256.256.256"}, ConfigError, ["256.256.256.256", "no known host"]),
        ({"to": ""}, ConfigError, ["the other host is missing"]),
        ({"bind": "203.0.113.7"}, LinkError, ["cannot be reached"]),
        ({"port": 0}, ConfigError, ["port: 0", "1 to 65535"]),
        ({"port": 70_000}, ConfigError, ["port: 70000"]),
        ({"duration_s": 0}, ConfigError, ["duration: 0 s", "1 to 86400"]),
        ({"duration_s": 1.5}, ConfigError, ["duration: 1.5 s", "whole seconds"]),
        ({"duration_s": float("nan")}, ConfigError, ["duration: nan s"]),
        ({"direction": "sideways"}, ConfigError, ["'sideways'", "up, down, both"]),
        ({"out_path": Path("/no/such/folder/x.tsv")}, ConfigError, ["there is no folder /no/such/folder"]),
        ({"out_path": Path(__file__)}, ConfigError, ["is there already", "never overwritten"]),
    ],
)
def test_mistakes(tmp_path, change, error, words):
    given = {"to": "127.0.0.1", "duration_s": 1, "direction": "up", "out_path": tmp_path / "x.tsv", "token": "s3cret"}
    with listening("s3cret") as port, pytest.raises(error) as caught:
        record(**{**given, "port": port, "on_second": nothing, **change})
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert not list(tmp_path.iterdir())


def test_nobody_listens(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(LinkError, match=rf"refused the connection; start .*bwbench link record --listen --port {port}"):
        record("127.0.0.1", port, 1, "up", tmp_path / "x", nothing)


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no bwbench listens there"),
        (b"x" * 1000, "too long a line"),
        (b"", "closed the connection"),
        (None, "no answer within 0.3 s"),
        (f"{session.MAGIC} no: busy with others; try again later\n".encode(), "busy with others"),
    ],
)
def test_something_else_listens(tmp_path, monkeypatch, says, words):
    if says is None:
        monkeypatch.setattr(session, "HANDSHAKE_S", 0.3)
    given_up = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if says is None:
                connection.recv(1000)
                given_up.wait(60)
            else:
                connection.recv(1000)
                connection.sendall(says)

    with serving(answer) as port, pytest.raises(LinkError, match=words):
        record("127.0.0.1", port, 1, "up", tmp_path / "x", nothing)
    given_up.set()


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"bwbench-record/1 up ten\n",
        b"bwbench-record/1 up 0\n",
        b"bwbench-record/1 up 99999999\n",
        b"bwbench-record/1 sideways 3\n",
        b"bwbench-record/2 up 3\n",
        b"\xff\xfe\n",
        b"x" * 300,
    ],
)
def test_the_listener_refuses_what_it_does_not_know(request_line):
    events: list[str] = []
    with listening(events=events) as port, socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(request_line)
        connection.settimeout(60)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while came := connection.recv(1000):
                answer += came
    assert answer == b"" or answer.startswith(f"{session.MAGIC} no: ".encode())
    assert events and events[0].startswith("127.0.0.1: refused: ")


def test_the_listener_says_how_to_record_and_ends_in_time():
    events: list[str] = []
    listen("127.0.0.1", 0, 0.1, events.append, token="abc")
    assert "bwbench link record --to THIS-HOST --port " in events[0] and events[0].endswith("--token abc")


def test_a_listener_needs_a_port_and_an_address_of_its_own():
    with Listener("127.0.0.1", 0) as listener, pytest.raises(LinkError, match="give another port"):
        Listener("127.0.0.1", listener.port)
    with pytest.raises(LinkError, match=r"cannot listen on 203\.0\.113\.7"):
        Listener("203.0.113.7", 0)
    with pytest.raises(ConfigError, match="is no address"):
        Listener("256.256.256.256", 0)


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
def test_against_an_iperf3_server(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = ["iperf3", "--server", "--one-off", "--bind", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    try:
        for _ in range(50):
            with contextlib.suppress(LinkError):
                summary = record_with_iperf3("127.0.0.1", port, 2, "down", tmp_path / "x.tsv", nothing)
                break
            time.sleep(0.1)
        server.wait(20)
    finally:
        server.kill()
        server.wait(20)
    assert len(summary.recorded[0].goodput_bps) == 2
    assert read_trace(Trace(file=str(tmp_path / "x.tsv"))).rates.duration_s == 2
    with pytest.raises(LinkError, match="iperf3 --server"):
        record_with_iperf3("127.0.0.1", port, 1, "up", tmp_path / "y.tsv", nothing)
