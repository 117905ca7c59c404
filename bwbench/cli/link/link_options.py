"""The options of ``bwbench link``: those that describe a link, declared once for every command that takes one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from bwbench.cli.options import option

_LINK, _DISTURBANCES, _AIR, _NODES = "Link", "Disturbances", "Shared air", "Nodes and back end"


def _option(panel: str, metavar: str | None, text: str, *names: str) -> Any:
    return option(text, *names, metavar=metavar, rich_help_panel=panel)


@dataclass(frozen=True)
class LinkOptions:
    """What was said about the link; None (and empty lists) where nothing was. Names and units are those of ``Link``."""

    link_file: Annotated[
        str | None, _option(_LINK, "FILE", "YAML: a link, or an experiment with one. Options come on top.", "--link")
    ] = None
    preset: Annotated[
        str | None, _option(_LINK, "NAME", "A known link ('bwbench link presets'): wifi-802.11n-good.")
    ] = None
    bandwidth: Annotated[
        str | None, _option(_LINK, "RATE", "Of each node, up and down; PHY rate on a shared air: '10 Mbit/s'.")
    ] = None
    up: Annotated[str | None, _option(_LINK, "RATE", "From a node, where that differs: '1 Mbit/s'.")] = None
    down: Annotated[str | None, _option(_LINK, "RATE", "To a node, where that differs: '16 Mbit/s'.")] = None
    trace: Annotated[
        str | None,
        _option(_LINK, "FILE", "Rate over time: office.tsv, or 'office.csv,measures=tcp-goodput,start=10 s'."),
    ] = None
    columns: Annotated[
        str | None, _option(_LINK, "NAMES", "Of the trace's CSV columns, in place of a header: 'time_s,bytes_per_s'.")
    ] = None
    latency: Annotated[str | None, _option(_LINK, "TIME", "One-way delay between two nodes: '2.5 ms'.")] = None
    queue: Annotated[
        str | None,
        _option(
            _LINK, "SIZE", "Before each bottleneck: '50 ms' at its rate, '64 kB', '100 packets', '2 bdp'; or fq_codel."
        ),
    ] = None
    jitter: Annotated[str | None, _option(_DISTURBANCES, "TIME", "Standard deviation of the delay: '1 ms'.")] = None
    jitter_kind: Annotated[
        str | None,
        _option(_DISTURBANCES, "NAME", "correlated (the delay wanders) or independent (drawn for every frame)."),
    ] = None
    jitter_distribution: Annotated[
        str | None, _option(_DISTURBANCES, "NAME", "How the delay varies: normal, uniform or pareto.")
    ] = None
    reorder: Annotated[
        bool | None,
        _option(_DISTURBANCES, None, "Let frames overtake each other where jitter makes them.", "--reorder"),
    ] = None
    loss: Annotated[str | None, _option(_DISTURBANCES, "SHARE", "Of the frames that are lost: 0.01.")] = None
    loss_burst: Annotated[
        str | None, _option(_DISTURBANCES, "FRAMES", "Lose them in bursts of this mean length: 5.")
    ] = None
    outage: Annotated[
        list[str] | None,
        _option(_DISTURBANCES, "TIMES", "Dead link: 'at=5 s,duration=2 s'; ',every=30 s', ',nodes=0+2'. Repeatable."),
    ] = None
    medium: Annotated[
        str | None, _option(_AIR, "NAME", "switched (a link a node) or shared (one half-duplex air for all).")
    ] = None
    standard: Annotated[
        str | None, _option(_AIR, "NAME", "802.11g, 802.11n, 802.11ac or 802.11ax: defaults of the next two.")
    ] = None
    efficiency: Annotated[str | None, _option(_AIR, "SHARE", "What the MAC leaves of the PHY rate: 0.65.")] = None
    aggregation: Annotated[str | None, _option(_AIR, "FRAMES", "Most frames of one transmission: 20.")] = None
    fairness: Annotated[
        str | None, _option(_AIR, "NAME", "Equally many transmissions for all (packet), or equal airtime.")
    ] = None
    wired: Annotated[
        list[str] | None, _option(_AIR, "NODE", "A node that is wired to the access point. Repeatable.")
    ] = None
    override: Annotated[
        list[str] | None,
        _option(_NODES, "NODE:KEY=VALUE,…", "A node that differs: '3:bandwidth=2 Mbit/s,latency=20 ms'. Repeatable."),
    ] = None
    mtu: Annotated[str | None, _option(_NODES, "BYTES", "Of the nodes' interfaces: 1280.")] = None
    congestion_control: Annotated[str | None, _option(_NODES, "NAME", "Of the nodes' TCP: cubic, reno, bbr.")] = None
    seed: Annotated[str | None, _option(_NODES, "NUMBER", "Of the random numbers behind loss and jitter.")] = None
    backend: Annotated[str | None, _option(_NODES, "NAME", "auto, netem (kernel) or relay (user space).")] = None


@dataclass(frozen=True)
class NodeRunOptions:
    """How ``link run`` runs its command in the nodes."""

    nodes: Annotated[int, option("How many nodes; each runs the command once.", metavar="N")] = 4
    timeout: Annotated[str | None, option("End all after this time: '30 s'; exit status 124.", metavar="TIME")] = None
    verify: Annotated[bool, option("Measure the link first; exit status 3 if it is off.", "--verify")] = False
    dilation: Annotated[
        float, option("Slow motion: make the link so many times slower (8) or faster (0.25).", metavar="K")
    ] = 1.0
    stdin: Annotated[
        str | None,
        option("Node that gets standard input, or 'none'. [0; none for a terminal and several nodes]", metavar="NODE"),
    ] = None
    pcap: Annotated[
        str | None, option("Capture what each node sends and receives: link-{rank}.pcap.", metavar="FILE")
    ] = None
    json_file: Annotated[
        str | None, option("Write what was achieved into this file, as JSON.", "--json", metavar="FILE")
    ] = None
    torch_env: Annotated[bool, option("Set RANK, WORLD_SIZE, MASTER_ADDR, … as torchrun does.", "--torch-env")] = False
    no_prefix: Annotated[bool, option("Print lines without the node's number.", "--no-prefix")] = False
    quiet: Annotated[bool, option("Neither meter nor summary of the link.", "--quiet")] = False


@dataclass(frozen=True)
class RecordOptions:
    """What ``link record`` measures, and where that goes."""

    to: Annotated[str | None, option("The other host, on which 'record --listen' runs.", metavar="HOST")] = None
    listen: Annotated[bool, option("Be that other host.", "--listen")] = False
    port: Annotated[int | None, option("TCP port; 5210, and 5201 with --iperf3.", metavar="N")] = None
    duration: Annotated[str | None, option("Of each direction: '60 s'; of listening: '1 h'.", metavar="TIME")] = None
    direction: Annotated[str, option("up, down or both (one after the other).", metavar="WAY")] = "both"
    out: Annotated[Path, option("Trace file; for both NAME.up.EXT and NAME.down.EXT.", metavar="FILE")] = Path(
        "recorded.tsv"
    )
    token: Annotated[
        str | None,
        option("Which the listener asks for; it makes one up unless told. '' lets everyone in.", metavar="WORD"),
    ] = None
    bind: Annotated[str, option("Of this host, to measure from or to listen on.", metavar="ADDRESS")] = ""
    iperf3: Annotated[bool, option("The other host runs 'iperf3 --server' instead.", "--iperf3")] = False
    json_: Annotated[bool, option("Print JSON instead of a table.", "--json")] = False


@dataclass(frozen=True)
class Shaping:
    """What ``link apply`` shapes, and for how long: its options beside those of the link."""

    dev: Annotated[str | None, option("The interface: wlan0.", metavar="IFACE")] = None
    peer: Annotated[
        list[str] | None, option("IP address (or network) of another machine. Repeatable.", metavar="ADDRESS")
    ] = None
    hosts: Annotated[
        Path | None, option("Instead: these hosts among each other, by ssh, until Ctrl-C.", metavar="FILE")
    ] = None
    port: Annotated[
        list[str] | None, option("Only TCP and UDP with these ports at either end. Repeatable.", metavar="N[-M]")
    ] = None
    except_port: Annotated[
        list[str] | None, option("Not TCP and UDP with these ports, such as 22. Repeatable.", metavar="N[-M]")
    ] = None
    for_: Annotated[str | None, option("Take it back after this time: '10 min'.", "--for", metavar="TIME")] = None
    hold: Annotated[bool, option("Stay, and take it back when this process ends.", "--hold")] = False
    only_up: Annotated[bool, option("Leave alone what comes in.", "--only-up")] = False
    dry_run: Annotated[bool, option("Print the tc commands and change nothing.", "--dry-run")] = False
    json_: Annotated[bool, option("Print JSON instead of text.", "--json")] = False
