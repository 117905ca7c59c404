"""``bwbench link verify`` measures a link that it makes, ``link record`` a network that is there."""

from __future__ import annotations

import math
import re
import secrets
import sys

import yaml
from rich.table import Table

from bwbench.base.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_UNFIT_MACHINE, ConfigError
from bwbench.base.plain_data import JsonObject
from bwbench.base.units import BANDWIDTH, rounded
from bwbench.cli.link.link_options import LinkOptions, RecordOptions
from bwbench.cli.link.read_link import as_duration, dilation_words, in_machine_time, read_link
from bwbench.cli.output import new_table, plain_table, print_json, stderr, stdout
from bwbench.network.link import Link
from bwbench.network.network import open_network
from bwbench.network.probe.probe_plan import thorough_s
from bwbench.network.probe.verification import LinkMeasurement, PairMeasurement, verify
from bwbench.network.record import DEFAULT_PORT, IPERF3_PORT, RecordSummary, listen, record, record_with_iperf3
from bwbench.network.record.recording import rtt_words
from bwbench.records.schema import Applied

DEFAULT_RECORDING_S, DEFAULT_LISTENING_S = 60.0, 3600.0
_NAMED = r"(to|port|duration|direction|token|bind): "


def verify_link(options: LinkOptions, nodes: int, tolerance: float, dilation: float, *, as_json: bool) -> int:
    """Make a link, measure it, and print asked, applied, achieved and error; in slow motion in both times."""
    if nodes < 2:
        raise ConfigError(f"--nodes {nodes}: a link has two ends; give 2 or more")
    if not 0 < tolerance < 1:
        raise ConfigError(f"--tolerance: {tolerance} is out of range: more than 0 and less than 1, such as 0.05")
    asked = read_link(options, nodes)
    link = in_machine_time(asked, dilation)
    with open_network(asked, nodes, dilation=dilation) as network:
        about = f"for {thorough_s(link, nodes):.0f} s or so" if link.shaped else "for a second or so"
        stderr().print(f"measuring {link.describe()} between {nodes} node(s) on {network.backend} {about} …")
        measured = verify(network, link, nodes, tolerance, thorough=True)
        health = network.health()
    if as_json:
        print_json(
            {
                **measured.to_json(),
                "backend_reason": network.backend_reason,
                "asked": asked.model_dump(mode="json", by_alias=True),
                "applied": network.applied,
                "emulator": health,
                **({} if dilation == 1 else _slow_motion(link, measured)),
            }
        )
    else:
        out = stdout()
        out.print(f"link      {asked.describe()}, {nodes} node(s)")
        if dilation != 1:
            out.print(f"dilation  {dilation_words(dilation)}: {link.describe()}")
        out.print(f"back end  {network.backend}: {network.backend_reason}")
        out.print(measured_table(Applied.model_validate(network.applied), measured))
        if dilation != 1:
            out.print("in emulated time:")
            out.print(measured_table(Applied(), measured.emulated(dilation)))
        out.print(f"verdict   {measured.verdict} (tolerance {tolerance:.3g})")
    for reason in measured.reasons:
        stderr().print(f"{measured.verdict.replace('-', ' ')}: {reason}")
    if measured.verdict == "out-of-tolerance":
        stderr().print(
            "the machine may be too busy or too slow for this link: look at 'bwbench doctor', close other programs, or "
            "ask for less bandwidth"
        )
    return EXIT_OK if measured.verdict == "ok" else EXIT_UNFIT_MACHINE


def _slow_motion(link: Link, measured: LinkMeasurement) -> JsonObject:
    """The link as it was made, and what was measured in emulated time."""
    return {
        "dilation": link.dilation,
        "dilated": link.model_dump(mode="json", by_alias=True),
        "emulated": measured.emulated(link.dilation).to_json(),
    }


def measured_table(applied: Applied, measured: LinkMeasurement) -> Table:
    """asked | applied | achieved | error: goodput of every pair, then round trips, losses, jitter if asked."""

    def goodput(pair: PairMeasurement) -> tuple[str, ...]:
        rates_bps = _of_both(applied, pair, "up_bps", "down_bps")
        what = "PHY" if applied.medium == "shared" else "of frames"
        shared_bps, _ = applied.between(pair.src, pair.dst)
        rate = "-" if rates_bps is None else f"{BANDWIDTH.show(min(*rates_bps, *shared_bps), 6)} {what}"
        error = _show(pair.goodput_error, "{:+.2%}")
        return _mbit(pair.asked_goodput_bps), rate, _mbit(pair.achieved_goodput_bps), error

    def round_trip(pair: PairMeasurement) -> tuple[str, ...]:
        latencies_s = _of_both(applied, pair, "latency_s", "latency_s")
        delay = "-"
        if latencies_s is not None:
            outside_s = (applied.between(pair.src, pair.dst)[1] + applied.between(pair.dst, pair.src)[1]) / 2
            delay = f"2 x {rounded((sum(latencies_s) / 2 + outside_s) * 1e3, 4)} ms"
        return _ms(pair.asked_rtt_s), delay, _ms(pair.achieved_rtt_s), _ms(pair.rtt_error_s, "+")

    def lost(pair: PairMeasurement) -> tuple[str, ...]:
        ends = _of_both(applied, pair, "loss", "loss")
        loss = None if ends is None else 1 - math.sqrt((1 - ends[0]) * (1 - ends[1]))
        error = None if pair.achieved_loss is None else pair.achieved_loss - pair.asked_loss
        losses = (_show(share, "{:.2%}") for share in (pair.asked_loss, loss, pair.achieved_loss))
        sure = "" if pair.loss_interval is None else " ({:.2%} to {:.2%})".format(*pair.loss_interval)
        return *losses, _show(error, "{:+.2%}") + sure

    def varies(pair: PairMeasurement) -> tuple[str, ...]:
        ends_s = _of_both(applied, pair, "jitter_s", "jitter_s")
        jitter_s = None if ends_s is None else math.hypot(*ends_s) / math.sqrt(2)
        error_s = None if pair.achieved_jitter_s is None else pair.achieved_jitter_s - pair.asked_jitter_s
        known = f" (known to {pair.jitter_uncertainty:.0%})" if math.isfinite(pair.jitter_uncertainty) else ""
        return _ms(pair.asked_jitter_s), _ms(jitter_s), _ms(pair.achieved_jitter_s), _ms(error_s, "+") + known

    numbers = ("asked", "applied", "achieved", "error")
    table = new_table("pair", "quantity", *numbers, right=numbers)
    if measured.alone is not None:
        asked_bps, achieved_bps = measured.alone
        alone = PairMeasurement(0, 1, asked_goodput_bps=asked_bps, achieved_goodput_bps=achieved_bps)
        table.add_row("0 > 1 alone", "UDP goodput", *goodput(alone))
    rows = [("UDP goodput", goodput), ("round trip", round_trip), ("loss", lost)]
    if any(pair.asked_jitter_s for pair in measured.pairs):
        rows.append(("jitter", varies))
    for quantity, row in rows:
        for pair in measured.pairs:
            table.add_row(f"{pair.src} > {pair.dst}", quantity, *row(pair))
    return table


def _of_both(applied: Applied, pair: PairMeasurement, of_src: str, of_dst: str) -> tuple[float, float] | None:
    """What was set at both ends; None where nothing was, or where the back end has different qdiscs for them."""
    if len(applied.qdiscs) > 1:
        return None
    own = [getattr(applied.nodes.get(str(node)), key, None) for node, key in ((pair.src, of_src), (pair.dst, of_dst))]
    usual = [getattr(applied, key) for key in (of_src, of_dst)]
    src, dst = (first if first is not None else second for first, second in zip(own, usual, strict=True))
    return None if src is None or dst is None else (src, dst)


def _show(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _mbit(value_bps: float | None) -> str:
    return "-" if value_bps is None else f"{rounded(value_bps / 1e6, 4)} Mbit/s"


def _ms(value_s: float | None, sign: str = "") -> str:
    return "-" if value_s is None else f"{value_s * 1e3:{sign}.2f} ms"


def record_network(options: RecordOptions) -> int:
    """Measure a real network into trace files, or be the other host of such a measurement."""
    to = options.to
    usual_port = IPERF3_PORT if options.iperf3 and to is not None else DEFAULT_PORT
    port = usual_port if options.port is None else options.port
    if options.listen == (to is not None):
        raise ConfigError("give either --to HOST, or --listen on the other host")
    limit_s = DEFAULT_LISTENING_S if options.listen else DEFAULT_RECORDING_S
    if options.duration is not None:
        limit_s = as_duration("--duration", options.duration)
    try:
        if to is None:
            if not limit_s > 0:
                raise ConfigError(f"duration: {limit_s:g} s is out of range: it must be more than 0")
            token = secrets.token_hex(4) if options.token is None else options.token
            listen(options.bind, port, limit_s, lambda text: print(text, file=sys.stderr, flush=True), token)
            return EXIT_OK
        about = (limit_s, options.direction, options.out, _print_second)
        if options.iperf3:
            summary = record_with_iperf3(to, port, *about, bind=options.bind)
        else:
            summary = record(to, port, *about, token=options.token or "", bind=options.bind)
    except ConfigError as error:
        raise ConfigError(re.sub(_NAMED, r"--\1: ", str(error), count=1)) from None
    except KeyboardInterrupt:
        print("interrupted; whole seconds that were measured are kept" if to else "interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    _print_summary(summary, as_json=options.json_)
    return EXIT_OK


def _print_second(direction: str, second: int, goodput_bps: float) -> None:
    print(f"{direction} {second} s: {_mbit(goodput_bps)}", file=sys.stderr, flush=True)


def _print_summary(summary: RecordSummary, *, as_json: bool) -> None:
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
        (one.direction, _mbit(one.mean_bps), f"{one.coefficient_of_variation:.0%}", str(one.path))
        for one in summary.recorded
    ]
    print("\n".join(plain_table(("direction", "mean goodput", "varies by", "file"), table)))
    print(f"idle round trip        {rtt_words(summary.idle_rtt_s)}")
    print(f"round trip under load  {rtt_words(summary.loaded_rtt_s)}")
    print("in an experiment:")
    print(yaml.safe_dump({"link": summary.link()}, sort_keys=False).rstrip())
