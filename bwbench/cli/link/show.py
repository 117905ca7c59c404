"""``bwbench link show``: what a link is once everything is filled in, and what would carry it. Makes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bwbench.base.errors import EXIT_OK, BwbenchError, ConfigError
from bwbench.cli.link.options import LinkOptions, takes_link

if TYPE_CHECKING:
    from bwbench.network.link import Link


@takes_link
def show(
    options: LinkOptions,
    nodes: Annotated[int, typer.Option(help="How many nodes.")] = 4,
    hosts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead: what is shaped on these hosts now, by ssh.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> int:
    """Show a link node by node, what to expect of it, which back end would carry it, and the tc commands for the same.

    Nothing is set up. Traces count by their mean.
    """
    if hosts is not None:
        from bwbench.cli.link.on_hosts import show_hosts

        return show_hosts(hosts, json_)
    from bwbench.cli.output import print_json
    from bwbench.network.namespaces.addresses import MAX_NODES

    if not 1 <= nodes <= MAX_NODES:
        raise ConfigError(f"--nodes {nodes} is out of range: 1 to {MAX_NODES} on one machine")
    link = options.link(nodes)
    content = _content(link, nodes)
    if json_:
        print_json(content)
    else:
        _print(link, content)
    return EXIT_OK


def _content(link: Link, num_nodes: int) -> dict[str, Any]:
    from bwbench.cli.link.expectation import expected_of_nodes, expected_of_pairs
    from bwbench.network.backend_choice import choose
    from bwbench.network.netem.netem_check import netem_available
    from bwbench.network.netem.tc_commands import tc_commands

    backend: str | None = None
    try:
        backend, reason = choose(link, netem_available())
    except BwbenchError as error:
        reason = str(error)
    commands: list[str] | None = None
    refusal = None
    try:
        commands = tc_commands(link, num_nodes)
    except BwbenchError as error:
        refusal = str(error)
    return {
        "link": link.model_dump(mode="json", by_alias=True),
        "description": link.describe(),
        "backend": backend,
        "backend_reason": reason,
        "nodes": expected_of_nodes(link, num_nodes),
        "pairs": expected_of_pairs(link, num_nodes),
        "tc": commands,
        "tc_refusal": refusal,
    }


def _print(link: Link, content: dict[str, Any]) -> None:
    from bwbench.cli.output import stdout

    out = stdout()
    out.print(f"link      {content['description']}, {len(content['nodes'])} node(s)")
    out.print(f"back end  {content['backend'] or 'none'}: {content['backend_reason']}")
    if link.air is not None:
        air = link.air
        out.print(
            f"air       {air.efficiency:.3g} of the PHY rate for full transmissions of {air.aggregation} frame(s); "
            f"each takes {air.overhead_s * 1e3:.3g} ms and then its frames; {air.fairness}-fair"
        )
    settings = link.tcp.sysctls()
    if link.tcp.congestion_control is not None:
        settings = {"congestion control": link.tcp.congestion_control, **settings}
    if settings:
        out.print(f"tcp       {', '.join(f'{name}: {value}' for name, value in settings.items())}")
    if content["nodes"]:
        _print_nodes(content["nodes"])
    if content["pairs"]:
        _print_pairs(content["pairs"])
    print()
    if content["tc"] is None:
        print(content["tc_refusal"])
    else:
        print("\n".join(content["tc"]))


def _print_nodes(rows: Sequence[dict[str, Any]]) -> None:
    def queue(row: dict[str, Any], direction: str) -> str:
        if row["wired"]:
            return "-"
        packets = row[f"{direction}_queue_packets"]
        held = f"{packets} packets" if packets else f"{row[f'{direction}_queue_bytes'] / 1e3:.4g} kB"
        return f"{held}, {_ms(row[f'{direction}_queue_s'])}"

    def rate(row: dict[str, Any], direction: str) -> str:
        if row["wired"]:
            return "wire"
        return _rate(row[f"{direction}_bps"]) + (" (mean)" if row[f"{direction}_trace"] else "")

    columns = {
        "up": lambda row: rate(row, "up"),
        "down": lambda row: rate(row, "down"),
        "latency": lambda row: _ms(row["latency_s"]),
        "jitter": lambda row: _ms(row["jitter_s"]) if row["jitter_s"] else "-",
        "loss": lambda row: f"{row['loss']:.3g}" if row["loss"] else "-",
        "queue up": lambda row: queue(row, "up"),
        "queue down": lambda row: queue(row, "down"),
    }
    _print_alike("node", rows, lambda row: str(row["node"]), columns)


def _print_pairs(rows: Sequence[dict[str, Any]]) -> None:
    columns = {
        "ping": lambda row: _ms(row["rtt_s"]),
        "full frame": lambda row: _ms(row["full_frame_s"]),
        "UDP alone": lambda row: _rate(row["udp_goodput_alone_bps"]),
        "TCP alone": lambda row: f"at most {_rate(row['tcp_goodput_alone_bps'])}",
        "UDP, all sending": lambda row: _rate(row["udp_goodput_bps"]),
    }
    _print_alike("pair", rows, lambda row: f"{row['src']} > {row['dst']}", columns)


def _print_alike(name: str, rows: Sequence[dict[str, Any]], label: Any, columns: dict[str, Any]) -> None:
    """A table in which rows that say the same are one."""
    from bwbench.cli.plain_table import plain_table

    alike: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        alike.setdefault(tuple(column(row) for column in columns.values()), []).append(label(row))
    table = [(_shortened(labels, len(rows)), *cells) for cells, labels in alike.items()]
    print()
    print("\n".join(plain_table((name, *columns), table)))


def _shortened(labels: Sequence[str], number: int) -> str:
    if len(labels) == number > 1:
        return "each"
    return ", ".join(labels[:4]) + (f" and {len(labels) - 4} more" if len(labels) > 4 else "")


def _ms(value_s: float) -> str:
    return f"{value_s * 1e3:.4g} ms"


def _rate(value_bps: float | None) -> str:
    from bwbench.base.units import BANDWIDTH

    return "no limit" if value_bps is None else BANDWIDTH.show(value_bps, 4)
