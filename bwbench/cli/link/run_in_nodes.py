"""``bwbench link run``: any program, one copy a node, on a shaped link.

The commands are started together, watched together and ended together; lines of several never mix.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence

from bwbench.base.errors import EXIT_INTERRUPTED, EXIT_OK, ConfigError, LinkError
from bwbench.cli.link.link_options import LinkOptions, NodeRunOptions
from bwbench.cli.link.node_group import NodeGroup
from bwbench.cli.link.placeholders import fill_in
from bwbench.cli.link.read_link import as_duration, read_link
from bwbench.cli.output import size, stderr
from bwbench.network.link import Link
from bwbench.network.namespaces.addresses import MAX_NODES, node_addresses, node_environment, torch_environment
from bwbench.network.network import Network, open_network
from bwbench.network.probe.verification import verify
from bwbench.running.launch.attempt import VERIFY_TRIES, describe_exit, emulator_of, emulator_unfit

EXIT_TIMEOUT = 124  # as of timeout(1)


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
    if reason := emulator_unfit(emulator_of(health, None)):
        print(f"{reason}; 'bwbench doctor' tells what this machine can carry", file=sys.stderr)
