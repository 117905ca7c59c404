"""``bwbench link record``: a trace of one's own network, with bwbench on both of its ends."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bwbench.base.errors import EXIT_INTERRUPTED, EXIT_OK, ConfigError

if TYPE_CHECKING:
    from bwbench.network.record import RecordSummary

DEFAULT_RECORDING_S, DEFAULT_LISTENING_S = 60.0, 3600.0
_NAMED = re.compile(r"(to|port|duration|direction|token|bind): ")


def record(
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
        raise ConfigError(_NAMED.sub(r"--\1: ", str(error), count=1)) from None
    except KeyboardInterrupt:
        print("interrupted; whole seconds that were measured are kept" if to else "interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    _print_summary(summary, json_)
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


def _print_summary(summary: RecordSummary, json_: bool) -> None:
    from bwbench.cli.output import print_json
    from bwbench.cli.plain_table import plain_table
    from bwbench.network.record.summary import rtt_words

    if json_:
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
