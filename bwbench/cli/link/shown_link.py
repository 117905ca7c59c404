"""``bwbench link show`` and ``presets``: what a link is once everything is filled in, and what to expect of it.

Nothing is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from bwbench.base.errors import EXIT_OK, BwbenchError, ConfigError
from bwbench.base.units import BANDWIDTH, rounded
from bwbench.cli.link.drawn_sites import drawn_sites
from bwbench.cli.link.link_options import LinkOptions
from bwbench.cli.link.read_link import read_link
from bwbench.cli.output import plain_table, print_json, stdout
from bwbench.network.backend_choice import choose
from bwbench.network.link import Link
from bwbench.network.link.air import LONGEST_TRANSMISSION_S
from bwbench.network.link.named_links import named_links
from bwbench.network.link.node_link import NodeLink
from bwbench.network.link.variation import Trace
from bwbench.network.namespaces.addresses import MAX_NODES
from bwbench.network.netem.netem_check import netem_available
from bwbench.network.netem.tc_commands import tc_commands
from bwbench.network.probe.probe_plan import pairs_of


def print_presets(*, sources: bool, as_json: bool) -> int:
    """The links that have a name, with where their figures come from if ``sources``."""
    rows = preset_table()
    if as_json:
        print_json(rows)
    elif sources:
        print("\n\n".join(f"{row['name']}: {row['summary']}\n  {row['link']}\n  {row['source']}" for row in rows))
    else:
        print("\n".join(plain_table(("name", "what", "link"), [(r["name"], r["summary"], r["link"]) for r in rows])))
        print("\nOn a shared air frames take longer than that: bwbench link show --preset NAME has its round trips.")
    return EXIT_OK


def preset_table() -> list[dict[str, str]]:
    """A row for each built-in preset: ``name``, ``summary``, ``link`` (in words) and ``source``."""
    presets = named_links(Link).values()
    return [{**vars(preset), "link": Link.model_validate(preset.link).describe()} for preset in presets]


def show_hosts_or_link(options: LinkOptions, nodes: int, hosts: Path | None, *, as_json: bool) -> int:
    """What is shaped on hosts now, where a file names some; else what a link would be."""
    if hosts is not None:
        from bwbench.cli.link.real_interface import ask_hosts

        return ask_hosts(hosts, "show", as_json=as_json)
    if not 1 <= nodes <= MAX_NODES:
        raise ConfigError(f"--nodes {nodes} is out of range: 1 to {MAX_NODES} on one machine")
    link = read_link(options, nodes)
    rows, pairs, sites = expected_of_nodes(link, nodes), expected_of_pairs(link, nodes), link.site_network(nodes)
    backend: str | None = None  # no back end can carry it
    commands: list[str] | None = None  # tc has none for it
    refusal = None
    try:
        backend, reason = choose(link, netem_available=netem_available())
    except BwbenchError as error:
        reason = str(error)
    try:
        commands = tc_commands(link, nodes)
    except BwbenchError as error:
        refusal = str(error)
    if as_json:
        print_json(
            {
                "link": link.model_dump(mode="json", by_alias=True),
                "description": link.describe(),
                "backend": backend,
                "backend_reason": reason,
                "nodes": [row.to_json() for row in rows],
                **(sites.applied() if sites is not None else {}),
                "pairs": [asdict(pair) for pair in pairs],
                "tc": commands,
                "tc_refusal": refusal,
            }
        )
        return EXIT_OK
    stdout().print(f"link      {link.describe()}, {len(rows)} node(s)")
    stdout().print(f"back end  {backend or 'none'}: {reason}")
    _print_settings(link)
    if sites is not None:
        print("", *drawn_sites(link, sites), sep="\n")
    _print_expected(rows, pairs)
    if sites is not None:
        print("\nBetween sites one stream at a time on each line; what several nodes send at once shares it.")
    print()
    print(refusal if commands is None else "\n".join(commands))
    return EXIT_OK


@dataclass(frozen=True)
class ExpectedDirection:
    """What a node sends, or gets, through.

    Attributes:
        trace: the file whose mean ``bps`` is.
        queue_packets: None where the queue counts bytes.
        queue_s: what a full queue adds to the latency.
        discipline: what manages the queue; None where it is drop-tail.
    """

    bps: float
    trace: str | None
    queue_bytes: int
    queue_packets: int | None
    queue_s: float
    discipline: str | None = None


@dataclass(frozen=True)
class ExpectedNode:
    """A node with its defaults filled in; directions are None of one that is wired: its wire is never busy."""

    node: int
    wired: bool
    up: ExpectedDirection | None
    down: ExpectedDirection | None
    latency_s: float
    jitter_s: float
    loss: float

    def to_json(self) -> dict[str, object]:
        """One flat row, in SI units."""
        row: dict[str, object] = {"node": self.node, "wired": self.wired}
        for name, direction in (("up", self.up), ("down", self.down)):
            row |= {f"{name}_{field.name}": getattr(direction, field.name, None) for field in fields(ExpectedDirection)}
        return {**row, "latency_s": self.latency_s, "jitter_s": self.jitter_s, "loss": self.loss}


@dataclass(frozen=True)
class ExpectedPair:
    """A node and its neighbour, in SI units; rates are None between two nodes that are both wired.

    TCP's goodput is what its segments may fill: losses, small queues and, on a shared air, acknowledgements leave it
    less.

    Attributes:
        rtt_s: of a small ping on the idle link.
        full_frame_s: one way of a full frame; both with all serialisation.
    """

    src: int
    dst: int
    rtt_s: float
    full_frame_s: float
    udp_goodput_alone_bps: float | None
    tcp_goodput_alone_bps: float | None
    udp_goodput_bps: float | None


def _print_settings(link: Link) -> None:
    if (air := link.air) is not None:
        stdout().print(
            f"air       {air.efficiency:.3g} of the PHY rate for full transmissions of {air.aggregation} frame(s); "
            f"each takes {air.overhead_s * 1e3:.3g} ms and then its frames; {air.fairness}-fair"
        )
        if air.fairness == "packet" and math.isfinite(most := air.longest_share(link.base.up_bps)):
            stdout().print(
                f"fairness  no transmission is longer than {LONGEST_TRANSMISSION_S * 1e3:.4g} ms, so a slow station "
                f"gets at most {most:.2g} times the airtime of others: hardly what 'packet' means without aggregation"
            )
    settings = link.tcp.sysctls()
    if link.tcp.congestion_control is not None:
        settings = {"congestion control": link.tcp.congestion_control, **settings}
    if settings:
        stdout().print(f"tcp       {', '.join(f'{name}: {value}' for name, value in settings.items())}")


def _print_expected(nodes: Sequence[ExpectedNode], pairs: Sequence[ExpectedPair]) -> None:
    node_rows = [
        {
            "node": str(row.node),
            "up": _direction_rate(row.up),
            "down": _direction_rate(row.down),
            "latency": _ms(row.latency_s),
            "jitter": _ms(row.jitter_s) if row.jitter_s else "-",
            "loss": f"{row.loss:.3g}" if row.loss else "-",
            "queue up": _queue(row.up),
            "queue down": _queue(row.down),
        }
        for row in nodes
    ]
    pair_rows = [
        {
            "pair": f"{row.src} > {row.dst}",
            "ping": _ms(row.rtt_s),
            "full frame": _ms(row.full_frame_s),
            "UDP alone": _rate(row.udp_goodput_alone_bps),
            "TCP alone": f"at most {_rate(row.tcp_goodput_alone_bps)}",
            "UDP, all sending": _rate(row.udp_goodput_bps),
        }
        for row in pairs
    ]
    for rows in filter(None, (node_rows, pair_rows)):
        alike: dict[tuple[str, ...], list[str]] = {}  # rows that say the same are one
        for label, *values in (row.values() for row in rows):
            alike.setdefault(tuple(values), []).append(label)
        table = []
        for cells, labels in alike.items():
            more = f" and {len(labels) - 4} more" if len(labels) > 4 else ""
            which = "each" if len(labels) == len(rows) > 1 else ", ".join(labels[:4]) + more
            table.append((which, *cells))
        print("", *plain_table(tuple(rows[0]), table), sep="\n")


def _direction_rate(direction: ExpectedDirection | None) -> str:
    return "wire" if direction is None else _rate(direction.bps) + (" (mean)" if direction.trace else "")


def _queue(direction: ExpectedDirection | None) -> str:
    if direction is None:
        return "-"
    packets = direction.queue_packets
    held = f"{packets} packets" if packets else f"{rounded(direction.queue_bytes / 1e3, 4)} kB"
    return f"{held}, {direction.discipline or _ms(direction.queue_s)}"


def _ms(value_s: float) -> str:
    return f"{rounded(value_s * 1e3, 4)} ms"


def _rate(value_bps: float | None) -> str:
    return "no limit" if value_bps is None else BANDWIDTH.show(value_bps, 4)


def expected_of_nodes(link: Link, num_nodes: int) -> list[ExpectedNode]:
    """All nodes; none where nothing is shaped."""
    if not link.shaped:
        return []
    rows = []
    for number, node in enumerate(link.nodes(num_nodes)):
        wired = number in link.wired
        up = _direction(link, node, node.up_bps, node.up_queue_bytes, node.up_trace)
        down = _direction(link, node, node.down_bps, node.down_queue_bytes, node.down_trace)
        path = (node.latency_s, node.jitter_s, node.loss)
        rows.append(ExpectedNode(number, wired, None if wired else up, None if wired else down, *path))
    return rows


def _direction(link: Link, node: NodeLink, rate_bps: float, queue_bytes: int, trace: Trace | None) -> ExpectedDirection:
    capacity_bps = link.air.capacity_bps(rate_bps) if link.air else rate_bps
    file = trace.file if trace else None
    managed = node.discipline.discipline if node.discipline else None
    return ExpectedDirection(rate_bps, file, queue_bytes, node.queue_packets, queue_bytes * 8 / capacity_bps, managed)


def expected_of_pairs(link: Link, num_nodes: int) -> list[ExpectedPair]:
    """Every node and its neighbour."""
    return [
        ExpectedPair(
            src=pair.src,
            dst=pair.dst,
            rtt_s=pair.rtt_s,
            full_frame_s=pair.latency_s + _serialisation_s(link, num_nodes, pair.src, pair.dst),
            udp_goodput_alone_bps=_finite(pair.alone_goodput_bps),
            tcp_goodput_alone_bps=_finite(pair.alone_bps / pair.full.wire_per_payload),
            udp_goodput_bps=_finite(pair.goodput_bps),
        )
        for pair in pairs_of(link, num_nodes)
    ]


def _serialisation_s(link: Link, num_nodes: int, src: int, dst: int) -> float:
    """A full frame through the sender's and the receiver's side of an idle link, and the lines between their sites."""
    sides = [(src, link.node(src).up_bps), (dst, link.node(dst).down_bps)]
    if link.air is None:
        sites = link.site_network(num_nodes)
        shared = [] if sites is None else sites.route(sites.site_of[src], sites.site_of[dst])
        rates_bps = [*(rate_bps for _, rate_bps in sides), *(line.rate_bps for line in shared)]
        return sum(link.full_frame.num_bytes * 8 / rate_bps for rate_bps in rates_bps)
    return sum(
        link.air.transmission_s(link.full_frame.num_bytes, rate_bps)
        for node, rate_bps in sides
        if node not in link.wired
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
