"""``bwbench link run``: any program, one copy a node, on a shaped link.

The commands are started together, watched together and ended together; lines of several never mix.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bwbench.base.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_UNFIT_MACHINE, ConfigError, LinkError
from bwbench.base.units import rounded
from bwbench.cli.link.captures import capture_files, captured
from bwbench.cli.link.change_socket import ChangeSocket
from bwbench.cli.link.link_options import LinkOptions, NodeRunOptions
from bwbench.cli.link.node_group import NodeCommand, NodeGroup
from bwbench.cli.link.node_terminal import NodeStdin
from bwbench.cli.link.placeholders import fill_in
from bwbench.cli.link.read_link import as_duration, dilation_words, in_machine_time, read_link
from bwbench.cli.link.run_meter import RunMeter
from bwbench.cli.link.run_verdict import RunVerdict, RunWatch
from bwbench.cli.output import stderr
from bwbench.network.backend_choice import beyond_relay
from bwbench.network.link import Link
from bwbench.network.namespaces.addresses import MAX_NODES, node_addresses, node_environment, torch_environment
from bwbench.network.network import Network, open_network
from bwbench.network.probe.verification import LinkMeasurement, verify
from bwbench.running.launch.attempt import VERIFY_TRIES
from bwbench.running.launch.deaths import describe_exit

EXIT_TIMEOUT = 124  # as of timeout(1)


def run_in_nodes(command: Sequence[str], how: NodeRunOptions, options: LinkOptions) -> int:
    """Run a command in every node; the exit status is that of the highest that failed by itself.

    Where none failed, 3 says that the emulator was not the link that was asked for.
    """
    nodes = how.nodes
    if not 1 <= nodes <= MAX_NODES:
        raise ConfigError(f"--nodes {nodes} is out of range: 1 to {MAX_NODES} on one machine")
    link = read_link(options, nodes)
    made = in_machine_time(link, how.dilation)
    limit_s = as_duration("--timeout", how.timeout) if how.timeout is not None else None
    if limit_s is not None and not limit_s > 0:
        raise ConfigError(f"--timeout: {how.timeout!r} is out of range: it must be more than 0")
    words = _words(command, nodes)
    stdin = NodeStdin.of(how.stdin, nodes)
    files = [] if how.pcap is None else capture_files(how.pcap, nodes)
    if how.json_file is not None and not Path(how.json_file).parent.is_dir():
        raise ConfigError(f"--json {how.json_file}: there is no folder {Path(how.json_file).parent}")
    with open_network(link, nodes, dilation=how.dilation) as network:
        if not how.quiet:
            _announce(network, made)
        if how.verify:
            _measure(network, made)
        with captured(network, files), ChangeSocket(network) as changing:
            status, verdict = _run(network, made, words, limit_s, stdin, how)
    if verdict is None:
        return status
    verdict = replace(verdict, changes=tuple(changing.changes))
    _tell(verdict, how)
    return status or (EXIT_UNFIT_MACHINE if verdict.reasons else EXIT_OK)


def _announce(network: Network, link: Link) -> None:
    """What the slow motion of ``link`` means, where it is in one, and what may be too much for the relay."""
    if link.dilation != 1:
        stderr().print(f"asked: {link.asked.describe()}")
        stderr().print(f"made, {dilation_words(link.dilation)}: {link.describe()}")
        for words in network.applied.get("undilated", ()):
            stderr().print(f"not dilated: {words}")
    if network.backend == "relay" and (beyond := beyond_relay(link, len(network.nodes))):
        stderr().print(f"note: {beyond}")


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
            if link.dilation != 1:
                _print_both_times(measured, link.dilation)
            return
    raise LinkError("\n".join(["the link is out of tolerance; nothing was started", *measured.reasons]))


def _print_both_times(measured: LinkMeasurement, dilation: float) -> None:
    for pair, emulated in zip(measured.pairs, measured.emulated(dilation).pairs, strict=True):
        here, there = (
            f"{rounded(one.achieved_goodput_bps / 1e6, 4)} Mbit/s, {rounded((one.achieved_rtt_s or 0.0) * 1e3, 4)} ms"
            for one in (pair, emulated)
        )
        stderr().print(f"node {pair.src} to node {pair.dst}: {here} in the machine's time; {there} in emulated time")


def _run(
    network: Network, link: Link, words: list[list[str]], limit_s: float | None, stdin: NodeStdin, how: NodeRunOptions
) -> tuple[int, RunVerdict | None]:
    """Exit status, and what the link did meanwhile: None where nobody could be asked any more."""
    commands = []
    for rank, argv in enumerate(words):
        environment = {**os.environ, **node_environment(rank, network.nodes)}
        if how.torch_env:
            environment.update(torch_environment(rank, network.nodes))
        commands.append(NodeCommand(argv, environment))
    sys.stdout.flush()
    # What one node alone or the owner of the terminal prints goes there without us, and would meet the meter.
    is_shown = sys.stderr.isatty() and not how.quiet and len(words) > 1 and not stdin.lends_terminal
    meter = RunMeter(is_shown=is_shown)
    group = NodeGroup(
        network, sys.stdout.buffer, sys.stderr.buffer, prefixed=not how.no_prefix, stdin=stdin, before_output=meter.hide
    )
    watch = RunWatch(network, link)
    try:
        group.start(commands)
        network.play()

        def look() -> None:
            watch.look()
            meter.draw(watch.latest)

        in_time = group.watch(limit_s, look=look)
        verdict = watch.verdict()
        meter.hide()
        group.give_terminal_back()
        return _end(group, in_time=in_time), verdict
    except KeyboardInterrupt:
        meter.hide()
        group.give_terminal_back()
        group.end(signal.SIGINT)
        print("interrupted; all commands were ended", file=sys.stderr)
        try:
            return EXIT_INTERRUPTED, watch.verdict()
        except LinkError:  # nobody can be asked any more
            return EXIT_INTERRUPTED, None
    finally:
        meter.hide()
        group.close()


def _end(group: NodeGroup, *, in_time: bool) -> int:
    """End those that still run, and say why; the exit status."""
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


def _tell(verdict: RunVerdict, how: NodeRunOptions) -> None:
    """What was achieved, and why it was not what was asked."""
    if not how.quiet:
        print(*verdict.lines(), sep="\n", file=sys.stderr)
        if verdict.looked_outside:
            who = ", ".join(map(str, verdict.looked_outside))
            print(f"node(s) {who} looked for something outside, but nodes see only each other", file=sys.stderr)
    for reason in verdict.reasons:
        print(f"{reason}; 'bwbench doctor' tells what this machine can carry", file=sys.stderr)
    if how.json_file is not None:
        try:
            Path(how.json_file).write_text(
                json.dumps(verdict.to_json(), indent=1, allow_nan=False) + "\n", encoding="utf-8"
            )
        except OSError as error:
            raise ConfigError(f"--json: cannot write {how.json_file}: {error.strerror}") from error
