"""``bwbench link verify`` measures a link that it makes, ``link record`` a network that is there."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bwbench.base.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_UNFIT_MACHINE, ConfigError
from bwbench.cli.link.link_options import LinkOptions
from bwbench.cli.option_classes import takes_options
from bwbench.cli.output import new_table, plain_table, print_json, stderr, stdout

if TYPE_CHECKING:
    from rich.table import Table

    from bwbench.network.probe.measurement import LinkMeasurement, PairMeasurement
    from bwbench.network.record import RecordSummary

DEFAULT_RECORDING_S, DEFAULT_LISTENING_S = 60.0, 3600.0
_NAMED = r"(to|port|duration|direction|token|bind): "


@takes_options()
def verify(
    *,
    nodes: Annotated[int, typer.Option(help="How many nodes; each one sends to its neighbour.")] = 4,
    tolerance: Annotated[float, typer.Option(help="Relative error of goodput and round trip that is fine.")] = 0.05,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    options: LinkOptions,
) -> int:
    """Make a link in namespaces, measure it with all nodes sending, and print asked, applied, achieved and error.

    A link that changes over time is measured at its mean. Exit status 3 where the link does not do what was asked.
    """
    from bwbench.cli.link.read_link import read_link
    from bwbench.network.network import open_network
    from bwbench.network.probe.verification import verify as measure

    if nodes < 2:
        raise ConfigError(f"--nodes {nodes}: a link has two ends; give 2 or more")
    if not 0 < tolerance < 1:
        raise ConfigError(f"--tolerance: {tolerance} is out of range: more than 0 and less than 1, such as 0.05")
    link = read_link(options, nodes)
    with open_network(link, nodes) as network:
        stderr().print(f"measuring {link.describe()} between {nodes} node(s) on {network.backend} …")
        measured = measure(network, link, nodes, tolerance)
        health = network.health()
    if json_:
        print_json(
            {
                **measured.to_json(),
                "backend_reason": network.backend_reason,
                "asked": link.model_dump(mode="json", by_alias=True),
                "applied": network.applied,
                "emulator": health,
            }
        )
    else:
        out = stdout()
        out.print(f"link      {link.describe()}, {nodes} node(s)")
        out.print(f"back end  {network.backend}: {network.backend_reason}")
        out.print(measured_table(network.applied, measured))
        out.print(f"verdict   {measured.verdict} (tolerance {tolerance:.3g})")
    for reason in measured.reasons:
        stderr().print(f"out of tolerance: {reason}")
    if measured.verdict != "ok":
        stderr().print(
            "the machine may be too busy or too slow for this link: look at 'bwbench doctor', close other programs, or "
            "ask for less bandwidth"
        )
    return EXIT_OK if measured.verdict == "ok" else EXIT_UNFIT_MACHINE


def measured_table(applied: Mapping[str, Any], measured: LinkMeasurement) -> Table:
    """asked | applied | achieved | error: the goodput of every pair, then the round trips, then the losses.

    Args:
        applied: of the network.
    """

    def goodput(pair: PairMeasurement) -> tuple[str, ...]:
        error = _show(pair.goodput_error, "{:+.2%}")
        return _mbit(pair.asked_goodput_bps), _rate(applied, pair), _mbit(pair.achieved_goodput_bps), error

    def round_trip(pair: PairMeasurement) -> tuple[str, ...]:
        latencies_s = _of_both(applied, pair, "latency_s", "latency_s")
        delay = "-" if latencies_s is None else f"2 x {sum(latencies_s) / 2 * 1e3:.4g} ms"
        return _ms(pair.asked_rtt_s), delay, _ms(pair.achieved_rtt_s), _ms(pair.rtt_error_s, "+")

    def lost(pair: PairMeasurement) -> tuple[str, ...]:
        losses = _of_both(applied, pair, "loss", "loss")
        loss = None if losses is None else 1 - math.sqrt((1 - losses[0]) * (1 - losses[1]))
        error = None if pair.achieved_loss is None else pair.achieved_loss - pair.asked_loss
        return _percent(pair.asked_loss), _percent(loss), _percent(pair.achieved_loss), _show(error, "{:+.2%}")

    from bwbench.network.probe.measurement import PairMeasurement

    numbers = ("asked", "applied", "achieved", "error")
    table = new_table("pair", "quantity", *numbers, right=numbers)
    if measured.alone is not None:
        asked_bps, achieved_bps = measured.alone
        alone = PairMeasurement(0, 1, asked_goodput_bps=asked_bps, achieved_goodput_bps=achieved_bps)
        table.add_row("0 > 1 alone", "UDP goodput", *goodput(alone))
    for quantity, row in (("UDP goodput", goodput), ("round trip", round_trip), ("loss", lost)):
        for pair in measured.pairs:
            table.add_row(f"{pair.src} > {pair.dst}", quantity, *row(pair))
    return table


def _of_both(applied: Mapping[str, Any], pair: PairMeasurement, of_src: str, of_dst: str) -> tuple[float, float] | None:
    """What was set at both ends; None where the back end has different qdiscs for them instead of such a figure."""
    if len(applied.get("shapes", ())) > 1:
        return None
    nodes = applied.get("nodes", {})
    src, dst = ({**applied, **nodes.get(str(node), {})} for node in (pair.src, pair.dst))
    return (src[of_src], dst[of_dst]) if of_src in src and of_dst in dst else None


def _rate(applied: Mapping[str, Any], pair: PairMeasurement) -> str:
    rates_bps = _of_both(applied, pair, "up_bps", "down_bps")
    if rates_bps is None:
        return "-"
    from bwbench.base.units import BANDWIDTH

    kind = "PHY" if applied.get("medium") == "shared" else "of frames"
    return f"{BANDWIDTH.show(min(rates_bps), 6)} {kind}"


def _show(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _mbit(value_bps: float | None) -> str:
    return "-" if value_bps is None else f"{value_bps / 1e6:.4g} Mbit/s"


def _ms(value_s: float | None, sign: str = "") -> str:
    return "-" if value_s is None else f"{value_s * 1e3:{sign}.2f} ms"


def _percent(value: float | None) -> str:
    return _show(value, "{:.2%}")


def record(
    *,
    to: Annotated[
        str | None, typer.Option(metavar="HOST", help="The other host, on which 'record --listen' runs.")
    ] = None,
    listen: Annotated[bool, typer.Option("--listen", help="Be that other host.")] = False,
    port: Annotated[int | None, typer.Option(help="TCP port; 5210, and 5201 with --iperf3.")] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of each direction: '60 s'; of listening: '1 h'.")
    ] = None,
    direction: Annotated[str, typer.Option(help="up, down or both (one after the other).")] = "both",
    out: Annotated[Path, typer.Option(help="Trace file; for both NAME.up.EXT and NAME.down.EXT.")] = Path(
        "recorded.tsv"
    ),
    token: Annotated[
        str | None, typer.Option(help="Which the listener asks for; it makes one up unless told. '' lets everyone in.")
    ] = None,
    bind: Annotated[str, typer.Option(metavar="ADDRESS", help="Of this host, to measure from or to listen on.")] = "",
    iperf3: Annotated[bool, typer.Option("--iperf3", help="The other host runs 'iperf3 --server' instead.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Measure a real network second by second into trace files, for --trace here and 'link: {trace: …}' in experiments.

    On the other host: 'bwbench link record --listen'. It loads the network as much as TCP can.
    """  # fmt: skip
    from bwbench.network import record as recording

    if listen == (to is not None):
        raise ConfigError("give either --to HOST, or --listen on the other host")
    limit_s = _duration(duration, DEFAULT_LISTENING_S if listen else DEFAULT_RECORDING_S)
    try:
        if listen:
            _listen(bind, recording.DEFAULT_PORT if port is None else port, limit_s, token)
            return EXIT_OK
        assert to is not None
        if iperf3:
            port = recording.IPERF3_PORT if port is None else port
            summary = recording.record_with_iperf3(to, port, limit_s, direction, out, _print_second, bind=bind)
        else:
            port = recording.DEFAULT_PORT if port is None else port
            summary = recording.record(to, port, limit_s, direction, out, _print_second, token=token or "", bind=bind)
    except ConfigError as error:
        raise ConfigError(re.sub(_NAMED, r"--\1: ", str(error), count=1)) from None
    except KeyboardInterrupt:
        print("interrupted; whole seconds that were measured are kept" if to else "interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    _print_summary(summary, as_json=json_)
    return EXIT_OK


def _duration(text: str | None, default_s: float) -> float:
    from bwbench.base.units import DURATION

    try:
        return default_s if text is None else DURATION.parse(text)
    except ValueError as error:
        raise ConfigError(f"--duration: {error}") from None


def _listen(address: str, port: int, limit_s: float, token: str | None) -> None:
    import secrets

    from bwbench.network import record as recording

    if not limit_s > 0:
        raise ConfigError(f"duration: {limit_s:g} s is out of range: it must be more than 0")
    token = secrets.token_hex(4) if token is None else token
    recording.listen(address, port, limit_s, lambda text: print(text, file=sys.stderr, flush=True), token)


def _print_second(direction: str, second: int, goodput_bps: float) -> None:
    print(f"{direction} {second} s: {goodput_bps / 1e6:.4g} Mbit/s", file=sys.stderr, flush=True)


def _print_summary(summary: RecordSummary, *, as_json: bool) -> None:
    from bwbench.network.record.summary import rtt_words

    if as_json:
        rows = [
            {
                "direction": one.direction,
                "file": str(one.path),
                "seconds": len(one.goodput_bps),
                "mean_goodput_bps": one.mean_bps,
                "coefficient_of_variation": one.coefficient_of_variation,
            }
            for one in summary.recorded
        ]
        print_json(
            {
                "to": summary.to,
                "recorded": rows,
                "idle_rtt_s": summary.idle_rtt_s,
                "loaded_rtt_s": summary.loaded_rtt_s,
                "congestion_control": summary.congestion_control,
                "link": summary.link(),
            }
        )
        return
    table = [
        (one.direction, f"{one.mean_bps / 1e6:.4g} Mbit/s", f"{one.coefficient_of_variation:.0%}", str(one.path))
        for one in summary.recorded
    ]
    print("\n".join(plain_table(("direction", "mean goodput", "varies by", "file"), table)))
    print(f"idle round trip        {rtt_words(summary.idle_rtt_s)}")
    print(f"round trip under load  {rtt_words(summary.loaded_rtt_s)}")
    print("in an experiment:")
    print(_as_yaml(summary.link()))


def _as_yaml(link: dict[str, object]) -> str:
    import yaml

    return str(yaml.safe_dump({"link": link}, sort_keys=False)).rstrip()
