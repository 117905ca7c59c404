"""``bwbench link run``: any program, one copy a node, on a shaped link.

The commands are started together, watched together and ended together; lines of several never mix.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from bwbench.base.errors import EXIT_INTERRUPTED, EXIT_OK, ConfigError, LinkError
from bwbench.base.explain import nearest
from bwbench.cli.link.link_options import LinkOptions, NodeRunOptions
from bwbench.cli.link.read_link import as_duration, read_link
from bwbench.cli.output import size, stderr
from bwbench.network.link import Link
from bwbench.network.namespaces.addresses import MAX_NODES, node_addresses, node_environment, torch_environment
from bwbench.network.network import Network, NodeProcess, open_network
from bwbench.network.probe.verification import verify
from bwbench.running.launch.attempt import VERIFY_TRIES, describe_exit, emulator_of, emulator_unfit

EXIT_TIMEOUT = 124  # as of timeout(1)
GRACE_S = 3.0  # from the request to end until SIGKILL
KILL_LIMIT_S = 5.0
LOOK_S = 2.0  # how often to ask whether the emulator is alive
LONGEST_LINE_BYTES = 65_536  # what is longer, or never ends its line, goes out in pieces
READ_BYTES = 65_536
MOST_READS = 16  # a pipe holds 64 kB, and 1 MB where somebody made it larger

# A placeholder is one word of letters in braces, with or without a number behind a colon, and nothing else: what JSON,
# awk, find or a shell write with braces (`{"a": 1}`, `{print $1}`, `{}`, `${HOME}`, `{1..3}`) stays as it is. A word in
# braces that is none of ours is refused, since it may be one that was mistyped; doubled braces around it (`{{word}}`)
# stand for single ones.
_NAMES = ("rank", "nodes", "address", "address:K")
_WORD = r"([A-Za-z_]\w*)(?::([\w.+-]*))?"
_PLACEHOLDER = r"\{\{(" + _WORD + r")\}\}|(?<!\$)\{" + _WORD + r"\}"


def run_in_nodes(command: Sequence[str], how: NodeRunOptions, options: LinkOptions) -> int:
    """Run a command in every node; the exit status is that of the highest that failed by itself."""
    nodes = how.nodes
    if not 1 <= nodes <= MAX_NODES:
        raise ConfigError(f"--nodes {nodes} is out of range: 1 to {MAX_NODES} on one machine")
    link = read_link(options, nodes)
    limit_s = as_duration("--timeout", how.timeout) if how.timeout is not None else None
    if limit_s is not None and not limit_s > 0:
        raise ConfigError(f"--timeout: {how.timeout!r} is out of range: it must be more than 0")
    words = _words(command, nodes)
    with open_network(link, nodes) as network:
        if how.verify:
            _measure(network, link)
        status = _run(network, words, limit_s, torch_env=how.torch_env, prefixed=not how.no_prefix)
        if not how.quiet:
            _print_summary(network)
    return status


def _words(command: Sequence[str], num_nodes: int) -> list[list[str]]:
    """The words of each node; raises ConfigError for a placeholder or a program that does not exist."""
    addresses = [node_addresses(node).data_address for node in range(num_nodes)]
    try:
        words = [fill_in(command, rank, addresses) for rank in range(num_nodes)]
    except ValueError as error:
        raise ConfigError(str(error)) from None
    for rank, (program, *_) in enumerate(words):
        if shutil.which(program) is None:
            raise ConfigError(f"there is no program {program!r} to run in node {rank}; is it in PATH, and executable?")
    return words


def _measure(network: Network, link: Link) -> None:
    """Raise LinkError where the link does not do what was asked."""
    if len(network.nodes) < 2:
        raise ConfigError("--verify: a link has two ends; give --nodes 2 or more")
    stderr().print(f"measuring {link.describe()} between {len(network.nodes)} nodes on {network.backend} …")
    for _ in range(VERIFY_TRIES):  # the machine may have been busy with something else
        measured = verify(network, link, len(network.nodes))
        if measured.verdict == "ok":
            stderr().print(f"the link is within {measured.tolerance:.0%} of what was asked")
            return
    raise LinkError("\n".join(["the link is out of tolerance; nothing was started", *measured.reasons]))


def _run(network: Network, words: list[list[str]], limit_s: float | None, *, torch_env: bool, prefixed: bool) -> int:
    commands = []
    for rank, argv in enumerate(words):
        environment = {**os.environ, **node_environment(rank, network.nodes)}
        if torch_env:
            environment.update(torch_environment(rank, network.nodes))
        commands.append((argv, environment))
    sys.stdout.flush()
    group = NodeGroup(network, sys.stdout.buffer, sys.stderr.buffer, prefixed=prefixed)
    try:
        group.start(commands)
        network.play()
        return _watch(group, limit_s)
    except KeyboardInterrupt:
        group.end(signal.SIGINT)
        print("interrupted; all commands were ended", file=sys.stderr)
        return EXIT_INTERRUPTED
    finally:
        group.close()


def _watch(group: NodeGroup, limit_s: float | None) -> int:
    """Until all have ended, one has failed, or time is up; the exit status."""
    in_time = group.watch(limit_s)
    failed = {rank: returncode for rank, returncode in group.returncodes.items() if returncode}
    running = group.running
    if running:
        group.end(signal.SIGTERM)
    for rank, returncode in failed.items():
        print(f"node {rank} {describe_exit(returncode)}", file=sys.stderr)
    if running:
        why = "one failed" if in_time else "time was up"
        print(f"node(s) {', '.join(map(str, running))} ended because {why}", file=sys.stderr)
    if failed:  # as a shell has it: 128 + n for signal n
        return max(128 - returncode if returncode < 0 else returncode for returncode in failed.values())
    return EXIT_OK if in_time else EXIT_TIMEOUT


def _print_summary(network: Network) -> None:
    """One line: who carried how much, and how late; another one where the link was not what was asked."""
    total, health = network.counters().total(), network.health()
    lateness_s = health.get("lateness_p99_s")
    late = "" if lateness_s is None else f"; p99 of lateness {lateness_s * 1e3:.2f} ms"
    words = f"{network.backend}: {size(total.bytes)} in {total.frames} frames on the wire, {total.drops} dropped{late}"
    print(words, file=sys.stderr)
    if nodes := network.looked_outside():
        who = ", ".join(map(str, nodes))
        print(f"node(s) {who} looked for something outside, but nodes see only each other", file=sys.stderr)
    if reason := emulator_unfit(emulator_of(health, None)):
        print(f"{reason}; 'bwbench doctor' tells what this machine can carry", file=sys.stderr)


def fill_in(words: Sequence[str], rank: int, addresses: Sequence[str]) -> list[str]:
    """The words of a command as node ``rank`` gets them.

    Args:
        addresses: of all nodes.

    Raises:
        ValueError: a placeholder that is none, or the address of a node that does not exist.
    """
    return [re.sub(_PLACEHOLDER, lambda match: _value(match, rank, addresses), word, flags=re.ASCII) for word in words]


def _value(match: re.Match[str], rank: int, addresses: Sequence[str]) -> str:
    literal, _, _, name, argument = match.groups()
    if literal is not None:
        return f"{{{literal}}}"
    if name == "address" and argument is not None:
        if not argument.isdigit() or int(argument) >= len(addresses):
            raise ValueError(f"{match[0]}: there is no node {argument!r}; nodes are numbered 0 to {len(addresses) - 1}")
        return addresses[int(argument)]
    values = {"rank": str(rank), "nodes": str(len(addresses)), "address": addresses[rank]}
    if name not in values:
        known = ", ".join(f"{{{known}}}" for known in _NAMES)
        raise ValueError(
            f"{match[0]} is no placeholder.{nearest(name, values)} There are {known}; for braces as such write "
            f"{{{match[0]}}}"
        )
    if argument is not None:
        raise ValueError(f"{match[0]}: {{{name}}} takes nothing behind a colon")
    return values[name]


class NodeGroup:
    """One process a node; what they print goes line by line to ``out`` and ``err``, after ``[rank] `` if prefixed."""

    def __init__(self, network: Network, out: BinaryIO, err: BinaryIO, *, prefixed: bool) -> None:
        self._network = network
        self._streams = (out, err)
        self._prefixed = prefixed
        self._processes: dict[int, NodeProcess] = {}
        self._pipes: list[LinePipe] = []
        self._selector = selectors.DefaultSelector()
        self.returncodes: dict[int, int] = {}

    def start(self, commands: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> None:
        """Start the command (words and environment) of every node; raises LaunchError where one cannot be."""
        if len(commands) == 1:  # as it comes: nobody else writes, and a terminal stays one
            out, err = (stream.fileno() for stream in self._streams)
            self._add(0, self._network.spawn(0, *commands[0], None, out, err))
            return
        for rank, command in enumerate(commands):
            prefix = b"[%d] " % rank if self._prefixed else b""
            pipes = [LinePipe(stream, prefix) for stream in self._streams]
            self._pipes += pipes
            try:
                out, err = (pipe.write_fd for pipe in pipes)
                process = self._network.spawn(rank, *command, None, out, err)
            finally:
                for pipe in pipes:
                    os.close(pipe.write_fd)  # without which the pipe would never end
            for pipe in pipes:
                self._selector.register(pipe, selectors.EVENT_READ, pipe)
            self._add(rank, process)

    def _add(self, rank: int, process: NodeProcess) -> None:
        self._processes[rank] = process
        self._selector.register(process, selectors.EVENT_READ, rank)

    @property
    def running(self) -> list[int]:
        """Nodes whose command has not ended yet."""
        return [rank for rank in self._processes if rank not in self.returncodes]

    def end(self, politely: int) -> None:
        """Ask those that still run to end, by this signal; after a grace they are killed."""
        for number, limit_s in ((politely, GRACE_S), (signal.SIGKILL, KILL_LIMIT_S)):
            for rank in self.running:
                self._processes[rank].send_signal(number)
            self.watch(limit_s, to_the_end=True)

    def close(self) -> None:
        """Pass on what was printed last. What is still running is for the network to end."""
        self._selector.close()
        for pipe in self._pipes:
            pipe.finish()

    def watch(self, limit_s: float | None, *, to_the_end: bool = False) -> bool:
        """Pass on output until all have ended, or, unless ``to_the_end``, one has failed.

        Returns False where that takes longer than ``limit_s``. Raises LinkError where the emulator of the link has
        ended.
        """
        started_s = looked_s = time.monotonic()
        while self.running and (to_the_end or not any(self.returncodes.values())):
            now_s = time.monotonic()
            left_s = LOOK_S if limit_s is None else started_s + limit_s - now_s
            if left_s <= 0:
                return False
            if now_s - looked_s > LOOK_S:
                looked_s = now_s
                if self._network.health().get("alive") is False:
                    raise LinkError("the emulator of the link has ended; the commands were ended too")
            for key, _ in self._selector.select(min(left_s, LOOK_S)):
                if isinstance(key.data, LinePipe):
                    if key.data.pass_on():
                        continue
                else:
                    returncode = self._processes[key.data].poll()
                    self.returncodes[key.data] = -signal.SIGKILL if returncode is None else returncode
                self._selector.unregister(key.fileobj)
        return True


class LinePipe:
    """A pipe into which a node writes, and out of which whole lines go to one of our own streams.

    Attributes:
        write_fd: the node's end; close ours once the node has it.
    """

    def __init__(self, out: BinaryIO, prefix: bytes) -> None:
        self._out = out
        self._prefix = prefix
        self._line = b""
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)

    def fileno(self) -> int:
        """The end that is read."""
        return self._read_fd

    def pass_on(self) -> bool:
        """Pass on what is there; False at the end of the pipe."""
        try:
            data = os.read(self._read_fd, READ_BYTES)
        except BlockingIOError:
            return True
        *lines, self._line = (self._line + data).split(b"\n")
        while len(self._line) > LONGEST_LINE_BYTES:
            lines.append(self._line[:LONGEST_LINE_BYTES])
            self._line = self._line[LONGEST_LINE_BYTES:]
        self._write(lines)
        return bool(data)

    def finish(self) -> None:
        """Pass on what can be read at once, a last line without its end too, and close the pipe. Safe to call twice."""
        if self._read_fd < 0:
            return
        with contextlib.suppress(BlockingIOError):  # something left behind by the node's command holds the other end …
            for _ in range(MOST_READS):  # … and may write for ever
                data = os.read(self._read_fd, READ_BYTES)
                if not data:
                    break
                self._line += data
        lines = self._line.split(b"\n")
        self._line = b""
        os.close(self._read_fd)
        self._read_fd = -1
        self._write(lines if lines[-1] else lines[:-1])

    def _write(self, lines: list[bytes]) -> None:
        if lines:
            self._out.write(b"".join(self._prefix + line + b"\n" for line in lines))
            self._out.flush()
