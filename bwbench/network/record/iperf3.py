"""The same against an iperf3 server, for hosts on which no bwbench can run."""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bwbench.base.errors import ConfigError, LinkError, UnfitMachineError
from bwbench.network.record import session
from bwbench.network.record.summary import (
    OnSecond,
    Recorded,
    RecordSummary,
    remarks_on,
    trace_paths,
    whole_seconds,
    write_trace,
)

DEFAULT_PORT = 5201
_GRACE_S = 30.0


def record_with_iperf3(
    to: str,
    port: int,
    duration_s: float,
    direction: str,
    out_path: Path,
    on_second: OnSecond,
    *,
    bind: str = "",
) -> RecordSummary:
    """As ``record``, with an iperf3 client here and ``iperf3 --server`` there; seconds come when a direction is over.

    Goodput is what iperf3 prints for each second: of the receiver going down, of the sender (which may run ahead by
    its buffer) going up.

    Raises:
        ConfigError: a value is out of range, or a file cannot be written.
        UnfitMachineError: iperf3 is not installed.
        LinkError: iperf3 failed; its own words follow.
    """
    seconds = whole_seconds(duration_s)
    if not 1 <= port <= 65_535:
        raise ConfigError(f"port: {port} is out of range: 1 to 65535")
    paths = trace_paths(out_path, direction)
    program = shutil.which("iperf3")
    if program is None:
        raise UnfitMachineError(
            "iperf3 is not installed here; install it, or record without it (bwbench on both hosts)"
        )
    started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    recorded: list[Recorded] = []
    for one, path in paths.items():
        argv = [program, "--client", to, "--port", str(port), "--time", str(seconds), "--interval", "1", "--json"]
        argv += ["--omit", f"{session.WARM_UP_S:.0f}"]
        argv += ["--reverse"] if one == "down" else []
        argv += ["--bind", bind] if bind else []
        result = _run(argv, seconds + session.WARM_UP_S + _GRACE_S, f"{to}:{port}")
        goodput_bps = [float(interval["sum"]["bits_per_second"]) for interval in result["intervals"]]
        goodput_bps = [
            value
            for value, interval in zip(goodput_bps, result["intervals"], strict=True)
            if not interval["sum"].get("omitted") and interval["sum"]["seconds"] > 0.5
        ]
        for second, value_bps in enumerate(goodput_bps):
            on_second(one, second, value_bps)
        recorded.append(Recorded(one, path, tuple(goodput_bps)))
        control = str(result.get("end", {}).get("sender_tcp_congestion", ""))
        summary = RecordSummary(f"{to}:{port}", tuple(recorded), congestion_control=control)
        write_trace(path, goodput_bps, remarks_on(summary, one, started, "with iperf3"))
    return summary


def _run(argv: list[str], limit_s: float, where: str) -> dict[str, Any]:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise LinkError(f"{where}: iperf3 is not done after {limit_s:g} s; is the network up?") from None
    try:
        result = json.loads(done.stdout)
    except ValueError:
        raise LinkError(f"{where}: iperf3 failed: {(done.stderr or done.stdout).strip()[:200]}") from None
    if "error" in result:
        hint = "; start it there first: iperf3 --server" if "refused" in result["error"] else ""
        raise LinkError(f"{where}: iperf3 failed: {str(result['error'])[:200]}{hint}")
    if not isinstance(result.get("intervals"), list) or not result["intervals"]:
        raise LinkError(f"{where}: iperf3 measured nothing")
    return dict(result)
