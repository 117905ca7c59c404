"""Goodput of each second against the trace that the link follows, by UDP that always has something to send."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bwbench.network.link.trace_file import freeze_link
from bwbench.network.network import Network, open_network
from link_accuracy_parts.case import Case, Options
from link_accuracy_parts.iperf import FIRST_PORT, Flow, RunningFlow, wait_for_intervals
from link_accuracy_parts.rows import Row, row
from link_accuracy_parts.tools import MeasurementError, UnavailableError
from link_accuracy_parts.trace_reading import Asked, read_mahimahi, read_wifi

# Below BWBENCH_DATA; four at a time, each at the uplink of a node of its own.
BATCHES = (
    (
        "traces/wifi/wifi_cafe_231115-151422.txt",
        "traces/wifi/wifi_restr_231115-130711.txt",
        "traces/wifi/wifi_office_231114-152843.txt",
        "traces/wifi/wifi_office_231114-154917.txt",
    ),
    (
        "traces/wifi/wifi_campus_231115-194559.txt",
        "traces/cellular/Verizon-LTE-short.down",
        "traces/cellular/ATT-LTE-driving-2016.down",
        "traces/cellular/TMobile-UMTS-driving.down",
    ),
)
SECONDS = 60
BANDWIDTH = "150 Mbit/s"  # of what follows no trace: above all of them
LATENCY = "2.5 ms"
QUEUE_S, QUEUE_BYTES = 0.1, 256_000  # always something to send: in fast milliseconds, and while iperf3 has to wait
OVERLOAD = 1.15
TOTAL_TOLERANCE, CORRELATION_TOLERANCE = 0.03, 0.05
BEFORE_S, AFTER_S = 5, 3


def cases(options: Options) -> list[Case]:
    """A case for each four traces."""
    if options.quick or options.backend == "netem":
        return []
    return [
        Case(f"traces {number}", SECONDS + BEFORE_S + AFTER_S + 6, partial(_measure, options, files))
        for number, files in enumerate(BATCHES, 1)
    ]


def _measure(options: Options, files: Sequence[str]) -> list[Row]:
    """Node 2k follows the k-th trace upwards and sends to node 2k + 1."""
    folder = _data_folder()
    asked = [_reader(name)(folder / name) for name in files]
    overrides = {
        2 * number: {"trace": {"up": str(folder / name)}, "queue": _queue(trace)}
        for number, (name, trace) in enumerate(zip(files, asked, strict=True))
    }
    link = options.link(bandwidth=BANDWIDTH, latency=LATENCY, overrides=overrides)
    with open_network(freeze_link(link, Path()), 2 * len(files)) as network:
        flows = []
        for number, trace in enumerate(asked):
            udp_bps = OVERLOAD * trace.most_in_a_second(SECONDS)
            flow = Flow(2 * number, 2 * number + 1, SECONDS + BEFORE_S + AFTER_S, udp_bps=udp_bps)
            flows.append(RunningFlow(network, flow, FIRST_PORT))
        try:
            began_s = _play(network, flows)
        finally:
            for running in flows:
                running.stop()
        late_s = network.health().get("lateness_p99_s")
    rows = []
    for name, trace, running in zip(files, asked, flows, strict=True):
        rows += _compare(Path(name).stem, options.backend, trace, running.intervals(), began_s + link.latency_s, late_s)
    return rows


def _play(network: Network, flows: Sequence[RunningFlow]) -> float:
    """Begin the traces once all flows run, and end them with the flows; gives the time at which they began."""
    for flow in flows:
        flow.start()
    wait_for_intervals(flows, 2, 30.0)
    before_s = time.monotonic()
    network.play()
    began_s = (before_s + time.monotonic()) / 2
    time.sleep(SECONDS + 1.1)
    network.hold()  # so that iperf3's own last words need not wait for a second without any rate
    for flow in flows:
        flow.finish()
    return began_s


def _compare(
    name: str,
    backend: str,
    trace: Asked,
    intervals: Sequence[tuple[float, float, float]],
    began_s: float,
    late_s: float | None,
) -> list[Row]:
    """Total, and correlation second by second, over the seconds that lie within the trace's time."""
    asked_bps, measured_bps = [], []
    for (left_s, _, _), (right_s, _, rate_bps) in itertools.pairwise(intervals):
        if left_s >= began_s and right_s <= began_s + SECONDS:
            bits = trace.by(right_s - began_s) - trace.by(left_s - began_s)
            asked_bps.append(bits / (right_s - left_s))
            measured_bps.append(rate_bps)
    if len(asked_bps) < SECONDS / 2:
        raise MeasurementError(f"{name}: only {len(asked_bps)} of {SECONDS} seconds were reported")
    figure = partial(row, "traces", backend=backend, seconds=len(asked_bps))
    total = figure(
        setting=f"{name}, mean", unit="bit/s", asked=statistics.fmean(asked_bps),
        measured=statistics.fmean(measured_bps), tolerance=TOTAL_TOLERANCE, lateness_p99_s=late_s,
        asked_bps=asked_bps, measured_bps=measured_bps,
    )  # fmt: skip
    correlation = statistics.correlation(asked_bps, measured_bps)
    tolerance = CORRELATION_TOLERANCE
    alike = figure(
        setting=f"{name}, alike", unit="1", asked=1.0, measured=correlation, tolerance=tolerance, absolute=True
    )
    return [total, alike]


def _queue(trace: Asked) -> str:
    return f"{max(QUEUE_BYTES, int(QUEUE_S * trace.most_in_a_second(SECONDS) / 8))} B"


def _reader(name: str) -> Callable[[Path], Asked]:
    return read_wifi if "wifi" in name else read_mahimahi


def _data_folder() -> Path:
    folder = os.environ.get("BWBENCH_DATA")
    if not folder:
        raise UnavailableError("BWBENCH_DATA names no folder with traces")
    missing = [name for name in itertools.chain(*BATCHES) if not (Path(folder) / name).is_file()]
    if missing:
        raise UnavailableError(f"{missing[0]} is not in the folder that BWBENCH_DATA names")
    return Path(folder).absolute()
