"""One cell as plain text for a terminal: what ``bwbench show`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bwbench.base.units import BANDWIDTH
from bwbench.cli.output import seconds, size
from bwbench.cli.plain_table import plain_table
from bwbench.cli.status import time_to_target
from bwbench.results.analysis.cells import setting_of
from bwbench.results.analysis.ledger import PART_NAMES

_INDENT = "  "
_EVALUATIONS = 12  # the last ones; --json has all


def cell_text(record: Mapping[str, Any]) -> Iterator[str]:
    """The lines, from the record that ``show.cell_record`` makes."""
    sections = (
        ("outcome", _outcome(record)),
        ("configuration", _configuration(record["cell"]["config"])),
        ("link", _link(record["link"])),
        ("time of a step", _ledger(record["ledger"])),
        ("bytes", _bytes(record)),
        ("environment", _environment(record["environment"])),
        ("evaluations on the validation split", _evaluations(record["evaluations"])),
    )
    yield f"{record['cell']['slug']}  (id {record['cell']['id']}, experiment {record['cell'].get('experiment')})"
    yield str(record["folder"])
    for title, lines in sections:
        shown = list(lines)
        if shown:
            yield ""
            yield title
            yield from (f"{_INDENT}{line}" for line in shown)
    for name, lines in record["logs"].items():
        yield ""
        yield f"last lines of {name}"
        yield from (f"{_INDENT}{line}" for line in lines or ["(empty)"])


def _outcome(record: Mapping[str, Any]) -> Iterator[str]:
    status = record["status"] or {}
    reason = str(status.get("reason") or "")
    if record["logs"]:
        reason = reason.partition("\n")[0]  # the log's last lines follow below
    attempt = "" if status.get("composed") else f" in attempt {status.get('attempt') or record['attempts']}"
    yield from f"{record['state']}{attempt}: {reason}".splitlines()
    if not status:
        return
    if origin := status.get("resumed_from"):
        yield f"resumed          from step {origin['step']} of attempt {origin['attempt']}"
    if refused := status.get("resume_refused"):
        yield f"not resumed      {refused}"
    yield f"time to target   {time_to_target(status)}"
    if composed := status.get("composed"):
        ends = composed.get("interval_s")
        within = f"; 95 % interval {seconds(ends[0])} to {seconds(ends[1])}" if ends else ""
        steps = f"{composed['timed_steps']} steps timed on the link (timing run {composed['timing']})"
        yield f"composed         of convergence run {composed['convergence']} and {steps}{within}"
    if error := record.get("composed_error"):
        yield f"composed, too    {seconds(error['composed_s'])}, off by {100 * error['error']:+.1f} %"
    metric = status.get("metric") or "metric"
    for name, key in (("final", "final_metric"), ("test", "test_metric")):
        if status.get(key) is not None:
            yield f"{f'{name} {metric}':<16} {status[key]:.4g}"
    yield (
        f"training clock   {seconds(status.get('training_clock_s'))}, {status.get('steps')} steps, "
        f"{status.get('samples')} samples; evaluation {seconds(status.get('evaluation_s'))}, "
        f"overhead {seconds(status.get('overhead_s'))}"
    )
    identical = status.get("replicas_identical")
    if identical is not None:
        yield f"replicas         {'bit-equal at the end' if identical else 'differ at the end'}"


def _configuration(config: Mapping[str, Any]) -> Iterator[str]:
    setting = setting_of(config)
    nodes = "1 node" if setting.nodes == 1 else f"{setting.nodes} nodes"
    samples = f"{nodes} x {setting.accumulate} x batch {setting.batch_size} = {setting.global_batch} samples a step"
    yield f"{setting.model} on {setting.dataset}, {samples}, seed {setting.seed}"
    width = max(len(key) for key in config)
    for key, value in config.items():
        yield f"{key:<{width}}  {_inline(value)}"


def _link(link: Mapping[str, Any] | None) -> Iterator[str]:
    if link is None:
        yield "nothing recorded"
        return
    reason = f" ({link['backend_reason']})" if link.get("backend_reason") else ""
    yield f"asked     {_inline(link.get('requested'))}"
    yield f"back end  {link.get('backend')}{reason}"
    applied = link.get("applied") or {}
    for host in applied.get("hosts") or ():
        what = f"{host['interface']}: {host['applied']}" if host else "nothing was heard of this host"
        yield f"applied   {what}"
    if "hosts" not in applied:
        yield f"applied   {_inline(applied or None)}"
    for key, when in (("achieved_before", "before training"), ("achieved_after", "after training")):
        measured = link.get(key)
        if measured:
            yield f"measured {when}: {measured.get('verdict')} {'; '.join(measured.get('reasons') or [])}".rstrip()
            yield from _pairs(measured.get("pairs") or [])
    if link.get("emulator"):
        yield f"emulator  {_inline(link['emulator'])}"


def _pairs(pairs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    columns = ("from", "to", "asked goodput", "achieved", "asked RTT", "achieved RTT", "asked loss", "achieved loss")
    rows = []
    for pair in pairs:
        row = [str(pair.get("src")), str(pair.get("dst"))]
        row += [_rate(pair.get("asked_goodput_bps")), _rate(pair.get("achieved_goodput_bps"))]
        row += [_milliseconds(pair.get("asked_rtt_s")), _milliseconds(pair.get("achieved_rtt_s"))]
        row += ["-" if pair.get(key) is None else f"{100 * pair[key]:.3g} %" for key in ("asked_loss", "achieved_loss")]
        rows.append(row)
    yield from plain_table(columns, rows, right=columns, indent=_INDENT)


def _ledger(ledger: Mapping[str, Any] | None) -> Iterator[str]:
    if ledger is None:
        yield "no step was recorded"
        return
    whole = ledger["step_mean_s"] or 1.0
    rows = [
        [name, _milliseconds(ledger["mean_s"][part]), f"{100 * ledger['mean_s'][part] / whole:.1f} %",
         _milliseconds(ledger["median_s"][part])]
        for part, name in PART_NAMES.items()
        if ledger["mean_s"][part] > 0
    ]  # fmt: skip
    rows.append(["step", _milliseconds(whole), "100.0 %", _milliseconds(ledger["step_median_s"])])
    columns = ("part", "mean", "share", "median")
    yield from plain_table(columns, rows, right=columns[1:])
    yield (
        f"over {ledger['num_steps']} steps of {ledger['num_ranks']} ranks; the parts miss the step by "
        f"{100 * ledger['additivity_error']:.2f} %"
    )
    if ledger["estimated"]:
        yield "computing and waiting are told apart by an estimate: torch's own DDP hides its waiting"
    if (ratio := ledger.get("slowest_ratio")) is not None:
        yield f"rank {ledger['slowest_rank']} is the last to have its gradients: {ratio:.2f} times the fastest's time"
    if (within_s := ledger.get("clock_uncertainty_s")) is not None:
        yield f"the hosts' clocks were compared to within {_milliseconds(within_s)}: so much may peers and link be off"
    if ledger["peers_reason"]:
        yield f"waiting is not split into peers and link: {ledger['peers_reason']}"


def _bytes(record: Mapping[str, Any]) -> Iterator[str]:
    status, wire = record["status"] or {}, (record["link"] or {}).get("wire") or {}
    steps = status.get("steps") or 0
    if status.get("payload_bytes") is not None:
        each = f", {size(status['payload_bytes'] / steps)} a step" if steps else ""
        until = (
            f", {size(status['payload_bytes_to_target'])} to target" if status.get("payload_bytes_to_target") else ""
        )
        yield f"payload  {size(status['payload_bytes'])} sent by all ranks{each}{until}"
    if wire.get("bytes") is not None:
        each = f", {size(wire['per_step_bytes'])} a step" if wire.get("per_step_bytes") is not None else ""
        ratio = f"; {wire['ratio']:.3f} of the payload" if wire.get("ratio") is not None else ""
        acks = wire.get("ack_bytes")
        sent = wire["bytes"] - (acks or 0)
        yield f"wire     {size(sent)}{each}{ratio}; acknowledgements apart: {size(acks)}"


def _environment(environment: Mapping[str, Any] | None) -> Iterator[str]:
    if environment is None:
        yield "nothing recorded"
        return
    width = max(len(key) for key in environment)
    for key, value in environment.items():
        yield f"{key:<{width}}  {_inline(value)}"


def _evaluations(points: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not points:
        yield "none"
        return
    metrics = [key for key in points[0] if key not in ("step", "samples", "clock_s", "payload_bytes", "target_met")]
    columns = ("step", "samples", "clock", *metrics, "target")
    rows = [
        [str(point["step"]), str(point["samples"]), seconds(point["clock_s"]),
         *("-" if point.get(metric) is None else f"{point[metric]:.4g}" for metric in metrics),
         "met" if point["target_met"] else "-"]
        for point in points[-_EVALUATIONS:]
    ]  # fmt: skip
    if len(points) > _EVALUATIONS:
        yield f"the last {_EVALUATIONS} of {len(points)}"
    yield from plain_table(columns, rows, right=columns)


def _inline(value: Any) -> str:
    """A value of JSON on one line, without quotes and braces where it reads well without them."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_inline(item)}" for key, item in value.items() if item is not None) or "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(_inline(item) for item in value) or "-"
    return "-" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)


def _rate(value: float | None) -> str:
    return "-" if value is None else BANDWIDTH.show(value, 4)


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{1000 * value:.3f} ms"
