"""The other side of a recording: waits for clients, sends to them, counts what they send, echoes."""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
import time
from collections.abc import Callable

from bwbench.base.errors import ConfigError, LinkError
from bwbench.base.listening import listening_everywhere
from bwbench.network.record import record_session as session

MOST_AT_ONCE = 8  # a client needs two: the load and the echo beside it
OnEvent = Callable[[str], None]
_GRACE_S = 30.0  # beyond the seconds asked for, before a session is ended


class Listener:
    """Listens from the moment it is made; ``serve`` answers. Closes its port at the end of a ``with`` block.

    Args:
        address: of this host, on which to listen; empty means all of them, IPv4 and IPv6.
        port: TCP; 0 takes a free one.
        token: what clients have to know; empty lets in everybody who can reach the port.

    Attributes:
        port: on which it listens.

    Raises:
        ConfigError: the address is not one of this host.
        LinkError: the port is taken, or may not be used.
    """

    def __init__(self, address: str = "", port: int = session.DEFAULT_PORT, token: str = "") -> None:
        if port:  # 0 takes a free one
            session.check_port(port)
        session.check_token(token)
        self._token = token
        self._active = threading.BoundedSemaphore(MOST_AT_ONCE)
        try:
            if address:
                flags = socket.AI_PASSIVE
                family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=flags)[0]
                self._socket = socket.create_server((str(where[0]), port), family=family)
            else:
                self._socket = listening_everywhere(port)
        except socket.gaierror as error:
            raise ConfigError(f"{address!r} is no address: {error.strerror}") from None
        except OSError as error:
            shown = address or "all addresses"
            text = f"cannot listen on {shown}, port {port}: {error.strerror}; give another port or address"
            raise LinkError(text) from None
        self._socket.settimeout(0.2)
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def serve(self, limit_s: float, on_event: OnEvent, stop: threading.Event | None = None) -> None:
        """Answer clients for ``limit_s``, or until ``stop`` is set; sessions under way end first.

        Args:
            limit_s: how long new clients are let in.
            on_event: gets a line of text for whatever happens, from several threads.
            stop: ends it early.
        """
        deadline_s = time.monotonic() + limit_s
        sessions: list[threading.Thread] = []
        while time.monotonic() < deadline_s and not (stop and stop.is_set()):
            try:
                connection, peer = self._socket.accept()
            except TimeoutError:
                sessions = [thread for thread in sessions if thread.is_alive()]
                continue
            except OSError as error:
                raise LinkError(f"cannot listen any longer: {error.strerror}") from None
            thread = threading.Thread(
                target=self._session, args=(connection, str(peer[0]).removeprefix("::ffff:"), on_event), daemon=True
            )
            thread.start()
            sessions.append(thread)
        for thread in sessions:
            while thread.is_alive() and not (stop and stop.is_set()):
                thread.join(0.2)

    def _session(self, connection: socket.socket, peer: str, on_event: OnEvent) -> None:
        with connection:
            try:
                mode, seconds = self._let_in(connection)
            except session.HandshakeError as error:
                on_event(f"{peer}: refused: {error}")
                with contextlib.suppress(OSError):
                    connection.sendall(f"{session.MAGIC} no: {error}\n".encode())
                return
            except OSError:
                return
            try:
                if mode != "echo":
                    on_event(f"{peer}: {mode} for {seconds} s")
                _serve(connection, mode, seconds)
            except OSError as error:
                on_event(f"{peer}: {mode} ended early: {error}")
            else:
                if mode != "echo":
                    on_event(f"{peer}: {mode} done")
            finally:
                self._active.release()

    def _let_in(self, connection: socket.socket) -> tuple[str, int]:
        """Mode and seconds of a client that may come in, which holds a place from now on; raises HandshakeError."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        words = session.read_line(connection, session.HANDSHAKE_S).split(" ")
        if len(words) not in (3, 4) or words[0] != session.MAGIC:
            raise session.HandshakeError("that is no request of this version of bwbench; take the same one on both")
        mode, seconds, token = words[1], words[2], (words[3] if len(words) == 4 else "")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise session.HandshakeError("wrong token; the listener shows the right one, give it with --token")
        if mode not in session.MODES or not seconds.isdecimal() or not 1 <= int(seconds) <= session.MAX_SECONDS:
            raise session.HandshakeError(f"{mode} for {seconds[:12]} s is nothing that can be measured")
        if not self._active.acquire(blocking=False):
            raise session.HandshakeError("busy with others; try again later")
        try:
            connection.sendall(f"{session.MAGIC} ok\n".encode())
        except OSError:
            self._active.release()
            raise
        return mode, int(seconds)


def listen(address: str, port: int, limit_s: float, on_event: OnEvent, token: str = "") -> None:
    """Listen for recordings, for ``limit_s`` seconds; see ``Listener``. The first event says where and how to record.

    Raises:
        ConfigError: the address, the port or the token is none.
        LinkError: the port is taken.
    """
    with Listener(address, port, token) as listener:
        options = "" if listener.port == session.DEFAULT_PORT else f" --port {listener.port}"
        options += f" --token {token}" if token else ""
        on_event(f"listening for {limit_s:g} s; on the other host: bwbench link record --to THIS-HOST{options}")
        listener.serve(limit_s, on_event)


def _serve(connection: socket.socket, mode: str, seconds: int) -> None:
    limit_s = session.WARM_UP_S + seconds + _GRACE_S
    if mode == "echo":
        session.echo(connection, limit_s)
    elif mode == "down":
        with contextlib.suppress(ConnectionError):  # the client ends it, with our bytes still on their way
            session.send(connection, limit_s, lambda line: line == "done")
    else:

        def report(second: int, goodput_bps: float) -> None:
            connection.settimeout(_GRACE_S)
            connection.sendall(f"{second} {goodput_bps:.0f}\n".encode())

        session.receive(connection, seconds, report)
        connection.settimeout(_GRACE_S)
        connection.sendall(b"done\n")
        connection.shutdown(socket.SHUT_WR)
        # What is still on its way is read: closing before that would cut off the last lines to the client.
        deadline_s = time.monotonic() + 5.0
        connection.settimeout(1.0)
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline_s and connection.recv(session.BLOCK_BYTES):
                pass
