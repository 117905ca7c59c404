"""``bwbench link verify``: make a link, measure what it does, print the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bwbench.cli.link.options import LinkOptions, takes_link
from bwbench.errors import EXIT_OK, EXIT_UNFIT_MACHINE, ConfigError

if TYPE_CHECKING:
    from bwbench.network.network import Network
    from bwbench.network.probe.measurement import LinkMeasurement


@takes_link
def verify(
    options: LinkOptions,
    nodes: Annotated[int, typer.Option(help="How many nodes; each one sends to its neighbour.")] = 4,
    tolerance: Annotated[float, typer.Option(help="Relative error of goodput and round trip that is fine.")] = 0.05,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Make a link in namespaces, measure it with all nodes sending, and print asked, applied, achieved and error.

    A link that changes over time is measured at its mean. Exit status 3 where the link does not do what was asked.
    """
    from bwbench.cli.output import print_json, stderr, stdout
    from bwbench.network.network import open_network
    from bwbench.network.probe.verify import verify as measure

    if nodes < 2:
        raise ConfigError(f"--nodes {nodes}: a link has two ends; give 2 or more")
    if not 0 < tolerance < 1:
        raise ConfigError(f"--tolerance: {tolerance} is out of range: more than 0 and less than 1, such as 0.05")
    link = options.link(nodes)
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
        out.print(_table(network, measured))
        out.print(f"verdict   {measured.verdict} (tolerance {tolerance:.3g})")
    for reason in measured.reasons:
        stderr().print(f"out of tolerance: {reason}")
    if measured.verdict != "ok":
        stderr().print(
            "the machine may be too busy or too slow for this link: look at 'bwbench doctor', close other programs, or "
            "ask for less bandwidth"
        )
    return EXIT_OK if measured.verdict == "ok" else EXIT_UNFIT_MACHINE


def _table(network: Network, measured: LinkMeasurement) -> Any:
    """asked | applied | achieved | error: the goodput of every pair, then the round trips, then the losses."""
    from bwbench.cli.output import new_table
    from bwbench.network.probe.measurement import PairMeasurement
    from bwbench.units import BANDWIDTH, DURATION

    def goodput(pair: PairMeasurement) -> tuple[str, ...]:
        error = pair.goodput_error
        return _mbit(pair.asked_goodput_bps), rate, _mbit(pair.achieved_goodput_bps), _show(error, "{:+.2%}")

    def round_trip(pair: PairMeasurement) -> tuple[str, ...]:
        return _ms(pair.asked_rtt_s), delay, _ms(pair.achieved_rtt_s), _ms(pair.rtt_error_s, "+")

    def lost(pair: PairMeasurement) -> tuple[str, ...]:
        error = None if pair.achieved_loss is None else pair.achieved_loss - pair.asked_loss
        return _percent(pair.asked_loss), loss, _percent(pair.achieved_loss), _show(error, "{:+.2%}")

    applied = network.applied
    rate = BANDWIDTH.format(applied.get("bandwidth_bps", 0)) + " of frames"
    delay = f"2 x {DURATION.format(applied.get('latency_s', 0))}"
    loss = _percent(applied.get("loss", 0))
    numbers = ("asked", "applied", "achieved", "error")
    table = new_table("pair", "quantity", *numbers, right=numbers)
    if measured.alone is not None:
        alone = PairMeasurement(0, 1, None, *measured.alone, None, None, 0.0, None)
        table.add_row("0 > 1 alone", "UDP goodput", *goodput(alone))
    for quantity, row in (("UDP goodput", goodput), ("round trip", round_trip), ("loss", lost)):
        for pair in measured.pairs:
            table.add_row(f"{pair.src} > {pair.dst}", quantity, *row(pair))
    return table


def _show(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _mbit(value_bps: float | None) -> str:
    return "-" if value_bps is None else f"{value_bps / 1e6:.4g} Mbit/s"


def _ms(value_s: float | None, sign: str = "") -> str:
    return "-" if value_s is None else f"{value_s * 1e3:{sign}.2f} ms"


def _percent(value: float | None) -> str:
    return _show(value, "{:.2%}")
