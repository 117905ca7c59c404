"""All that is known of one cell, and the same as plain text for a terminal: what ``bwbench show`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bwbench.base.plain_data import mapping_at
from bwbench.base.units import BANDWIDTH, DURATION
from bwbench.cli.cell_table import time_to_target
from bwbench.cli.output import plain_table, seconds, size
from bwbench.network.link import Link
from bwbench.records import CellFolder, cell_at
from bwbench.records.cell_identity import DEFAULTS
from bwbench.records.schema import (
    Applied,
    CurvePoint,
    Emulator,
    End,
    Environment,
    JsonObject,
    LedgerSummary,
    LinkRecord,
    MeasuredPair,
    Status,
    TargetArrival,
)
from bwbench.results.analysis.arrival import CENSORED, FIRST_CROSSING, FIT
from bwbench.results.analysis.caveats import ComposedError, composed_error
from bwbench.results.analysis.cell_arrival import arrival_of_cell
from bwbench.results.analysis.cells import cell_row, describe_link, is_virtual, setting_of, state_of
from bwbench.results.analysis.replicas_apart import PROMISE
from bwbench.results.analysis.trial import PART_NAMES, digest_of

_INDENT = "  "
_EVALUATIONS = 12  # the last ones; --json has all
_UNSHAPED = Link.model_validate("unshaped").model_dump(mode="json", by_alias=True)
_NO_TIMES = "virtual nodes share one process: their times say nothing"


@dataclass(frozen=True)
class Shown:
    """All that is known of one cell: its records, and what the event files add up to.

    Attributes:
        ledger, curve, ends: by events, or by what stands for them; ``ends`` by rank, None of a rank that did not end.
        logs: the last lines by file, where the cell is not done.
    """

    folder: CellFolder
    state: str
    ledger: LedgerSummary | None
    curve: Sequence[CurvePoint]
    ends: dict[int, End | None]
    composed_error: ComposedError | None
    logs: dict[str, list[str]]

    def to_json(self) -> dict[str, object]:
        """The files as they stand, fields that this version ignores included, and the rest."""
        folder, error = self.folder, self.composed_error
        whole = folder.raw("composed.json") if folder.composed is not None else None
        composed = whole if isinstance(whole, dict) else {}
        return {
            "folder": str(folder.path),
            "state": self.state,
            "cell": folder.raw("cell.json"),
            "status": folder.raw("status.json"),
            "attempts": folder.num_attempts,
            "link": composed.get("link") if composed else folder.raw("link.json"),
            "environment": composed.get("environment") if composed else folder.raw("environment.json"),
            "composed": composed or None,
            "composed_error": {**vars(error), "error": error.error} if error else None,
            "ledger": self.ledger.to_json() if self.ledger is not None else None,
            "evaluations": [point.to_json() for point in self.curve],
            "ends": {rank: end.to_json() if end is not None else None for rank, end in self.ends.items()},
            "logs": self.logs,
        }


def shown(path: Path) -> Shown:
    """The cell in ``path``. Raises RecordError where one of its records cannot be read."""
    folder = cell_at(path)
    if folder.problem is not None:
        raise folder.problem
    state = state_of(folder)
    events = folder.events() if folder.digest is None else {}
    digest = folder.digest or digest_of(events, folder.link)
    return Shown(
        folder=folder,
        state=state,
        ledger=digest.ledger,
        curve=digest.curve,
        ends={rank: next((e for e in reversed(found) if isinstance(e, End)), None) for rank, found in events.items()},
        composed_error=composed_error(folder),
        logs={} if state == "done" else folder.log_tails(),
    )


def cell_text(record: Shown) -> Iterator[str]:
    """The lines, from what ``shown`` found."""
    folder, content = record.folder, record.to_json()
    sections = (
        ("outcome", _outcome(record)),
        ("configuration", _configuration(folder.cell.config)),
        ("link", _link(folder.link, folder.environment)),
        ("time of a step", [_NO_TIMES] if is_virtual(folder) else _ledger(record.ledger)),
        ("bytes", _bytes(folder.status, folder.link, folder.environment)),
        ("environment", _aligned(_part(content["environment"])) or ["nothing recorded"]),
        ("evaluations on the validation split", _evaluations(record.curve)),
    )
    yield f"{folder.cell.slug}  (id {folder.cell.id}, experiment {folder.cell.experiment})"
    yield str(folder.path)
    for title, lines in sections:
        if found := list(lines):
            yield ""
            yield title
            yield from (f"{_INDENT}{line}" for line in found)
    for name, tail in record.logs.items():
        yield ""
        yield f"last lines of {name}"
        yield from (f"{_INDENT}{line}" for line in tail or ["(empty)"])


def _part(content: object) -> JsonObject:
    """A record as it stands in its file, with all of its fields."""
    return content if isinstance(content, dict) else {}


def _looked_at_anew(folder: CellFolder) -> str:
    """What the curve says of the arrival, behind the first crossing that status.json has."""
    found = arrival_of_cell(folder)
    if found.first_crossing_s is None:
        return ""
    words = {
        FIRST_CROSSING: "",
        FIT: f"; by the fit {seconds(found.time_to_target_s)} after {found.samples_to_target} samples"
        + _on_test(found.test_metric_at_arrival),
        CENSORED: f"; by the fit not within {seconds(found.censored_at_s)}",
    }
    return f", first crossing{words.get(found.arrival_kind or '', '')}"


def _arrival(one: TargetArrival) -> str:
    """One of several targets."""
    if one.time_s is None:
        late = "" if one.censored_at_s is None else f", not within {seconds(one.censored_at_s)}"
        reached = f"{one.kind}{late}"
    else:
        reached = f"{seconds(one.time_s)}, {one.samples} samples ({one.kind}){_on_test(one.test_metric)}"
    return f"{f'to {one.metric} {one.value:g}':<16} {reached}"


def _on_test(metric: float | None) -> str:
    return "" if metric is None else f", there {metric:.4g} on test"


def _outcome(record: Shown) -> Iterator[str]:
    status = record.folder.status
    reason = (status.reason if status is not None else None) or ""
    if record.logs:
        reason = reason.partition("\n")[0]  # the log's last lines follow below
    number = (status.attempt if status is not None else None) or record.folder.num_attempts
    attempt = "" if status is not None and status.composed is not None else f" in attempt {number}"
    yield from f"{record.state}{attempt}: {reason}".splitlines()
    if status is None:
        return
    if origin := status.resumed_from:
        yield f"resumed          from step {origin.step} of attempt {origin.attempt}"
    if refused := status.resume_refused:
        yield f"not resumed      {refused}"
    composed = status.composed
    if is_virtual(record.folder):
        yield f"time to target   {_NO_TIMES}"
        yield f"samples to it    {status.samples_to_target or f'not within {status.samples}'}"
        for one in status.arrivals if len(status.arrivals) > 1 else ():
            yield f"{f'to {one.metric} {one.value:g}':<16} {one.samples or f'not within {status.samples}'} samples"
    else:
        reached = time_to_target(status.time_to_target_s, status.censored_at_s, composed=composed is not None)
        yield f"time to target   {reached}{_looked_at_anew(record.folder)}"
        if cell_row(record.folder)["arrived_alone"]:
            yield "                 its nodes had sent nothing until then: the time of nodes that train alone"
        yield from map(_arrival, status.arrivals if len(status.arrivals) > 1 else ())
    if composed is not None:
        ends = composed.interval_s
        within = f"; 95 % interval {seconds(ends[0])} to {seconds(ends[1])}" if ends else ""
        steps = f"{composed.timed_steps} steps timed on the link (timing run {composed.timing})"
        yield f"composed         of convergence run {composed.convergence} and {steps}{within}"
    if error := record.composed_error:
        yield f"composed, too    {seconds(error.composed_s)}, off by {100 * error.error:+.1f} %"
    metric = status.metric or "metric"
    for name, value in (("final", status.final_metric), ("test", status.test_metric)):
        if value is not None:
            yield f"{f'{name} {metric}':<16} {value:.4g}"
    if status.weights is not None and status.beside_metric is not None:
        others = "trained" if status.weights == "averaged" else "averaged"
        yield f"weights          {status.weights} ones count; final {metric} of the {others} {status.beside_metric:.4g}"
    yield (
        f"training clock   {seconds(status.training_clock_s)}, {status.steps} steps, "
        f"{status.samples} samples; evaluation {seconds(status.evaluation_s)}, "
        f"overhead {seconds(status.overhead_s)}"
    )
    if status.replicas_identical is not None:
        yield f"replicas         {'bit-equal at the end' if status.replicas_identical else 'differ at the end'}"
        if cell_row(record.folder)["replicas_apart"]:
            yield f"                 and the method promises {PROMISE}: no time of it counts"


def _configuration(config: JsonObject) -> Iterator[str]:
    setting = setting_of(config)
    nodes = "1 node" if setting.nodes == 1 else f"{setting.nodes} nodes"
    samples = f"{nodes} x {setting.accumulate} x batch {setting.batch_size} = {setting.global_batch} samples a step"
    yield f"{setting.model} on {setting.dataset}, {samples}, seed {setting.seed}"
    asked = {key: value for key, value in mapping_at(config, "link").items()
             if value != DEFAULTS["link"].get(key, ()) and _inline(value) != "-"}  # fmt: skip
    yield from _aligned({**config, "link": asked})


def _aligned(content: Mapping[str, object]) -> list[str]:
    """A line a key."""
    width = max(map(len, content), default=0)
    return [f"{key:<{width}}  {_inline(value)}" for key, value in content.items()]


def _link(link: LinkRecord | None, environment: Environment | None) -> Iterator[str]:
    """What tells whether it was the link that was asked for; --json has every field."""
    if link is None:
        yield "nothing recorded"
        return
    reason = f" ({link.backend_reason})" if link.backend_reason else ""
    asked = "-" if link.requested is None else describe_link(link.requested)
    yield f"asked     {'nothing (link: unshaped)' if link.requested == _UNSHAPED else asked}"
    if link.dilation is not None:
        text = f"made {link.dilation:g} times as slow; what was applied and measured is in the machine's time"
        yield f"dilated   {text}"
    if link.shrink is not None:
        yield f"shrunk    rates and payloads divided by {link.shrink:g}, so that times are those of the whole cell"
    yield f"back end  {link.backend}{reason}"
    hosts = link.applied.hosts if link.applied is not None else ()
    for host in hosts:
        what = f"{host.interface}: {host.applied}" if host is not None else "nothing was heard of this host"
        yield f"applied   {what}"
    if not hosts and link.applied is not None:
        yield f"applied   {', '.join(_applied(link.applied)) or '-'}"
    for measured, when in ((link.achieved_before, "before training"), (link.achieved_after, "after training")):
        if measured is not None:
            yield f"measured {when}: {measured.verdict} {'; '.join(measured.reasons)}".rstrip()
            yield from _pairs(measured.pairs)
    if environment is not None and environment.hosts is not None:
        yield f"sends by  {'; '.join(_interfaces(environment))}"
    elif found := ", ".join(_emulator(link.emulator)):
        yield f"emulator  {found}"


def _applied(applied: Applied) -> Iterator[str]:
    """What was set for most nodes, and what is unusual about the others."""
    up, down = _rate(applied.up_bps), _rate(applied.down_bps)
    if applied.up_bps is not None or applied.bandwidth_bps is not None:
        yield f"{up} up, {down} down" if up != down else _rate(applied.bandwidth_bps or applied.up_bps)
    yield from (f"trace {direction}" for direction, trace in (("up", applied.up_trace), ("down", applied.down_trace))
                if trace is not None)  # fmt: skip
    if applied.latency_s is not None:
        yield f"{_duration(applied.latency_s)} one way"
    if applied.jitter_s:
        yield f"jitter {_duration(applied.jitter_s)}"
    if applied.loss:
        yield f"loss {100 * applied.loss:.3g} %"
    managed = f", {applied.discipline.get('discipline')}" if applied.discipline else ""
    if applied.queue_bytes is not None:
        yield f"queue {size(applied.queue_bytes)}{managed}"
    elif applied.queue_packets is not None:
        yield f"queue {applied.queue_packets} packets{managed}"
    if applied.outages:
        yield f"{len(applied.outages)} outage(s)"
    if applied.sites:
        yield f"{len(applied.sites)} sites"
    if applied.nodes:
        yield f"node(s) {', '.join(sorted(applied.nodes))} differ"
    if applied.mtu is not None:
        yield f"MTU {applied.mtu}"
    if (control := applied.tcp.get("tcp_congestion_control")) is not None:
        yield f"TCP {control}"
    yield from applied.undilated


def _emulator(emulator: Emulator) -> Iterator[str]:
    """How late frames left (those of the training, where they are told apart), and what was lost."""
    late = emulator.training if emulator.training is not None and emulator.training.frames else None
    median_s, most_s, max_s = (
        (late.p50_s, late.p99_s, late.max_s)
        if late is not None
        else (emulator.lateness_p50_s, emulator.lateness_p99_s, emulator.lateness_max_s)
    )
    if median_s is not None:
        yield f"frames left {_duration(median_s)} late (median), 99 % within {_duration(most_s)}"
        yield f"{_duration(max_s)} at most"
    if emulator.drops is not None:
        yield f"{emulator.drops} dropped by the link"
    if lost := (emulator.overruns or 0) + (emulator.unsent or 0):
        yield f"{lost} lost by this machine"
    if emulator.alive is False:
        yield "it had died by the end"


def _interfaces(environment: Environment) -> Iterator[str]:
    """Across several hosts: each interface, and whose it is."""
    for (address, name), ranks in environment.ranks_by_interface.items():
        who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
        yield f"{name} at {address} ({who})" if name else f"none ({who})"


def _pairs(pairs: Sequence[MeasuredPair]) -> Iterator[str]:
    columns = ("from", "to", "asked goodput", "achieved", "asked RTT", "achieved RTT", "asked loss", "achieved loss")
    rows = []
    for pair in pairs:
        row = [str(pair.src), str(pair.dst)]
        row += [_rate(pair.asked_goodput_bps), _rate(pair.achieved_goodput_bps)]
        row += [_milliseconds(pair.asked_rtt_s), _milliseconds(pair.achieved_rtt_s)]
        row += ["-" if loss is None else f"{100 * loss:.3g} %" for loss in (pair.asked_loss, pair.achieved_loss)]
        rows.append(row)
    yield from plain_table(columns, rows, right=columns, indent=_INDENT)


def _ledger(ledger: LedgerSummary | None) -> Iterator[str]:
    if ledger is None:
        yield "no step was recorded"
        return
    whole = ledger.step_mean_s or 1.0
    rows = [
        [name, _milliseconds(ledger.mean_s[part]), f"{100 * ledger.mean_s[part] / whole:.1f} %",
         _milliseconds(ledger.median_s[part])]
        for part, name in PART_NAMES.items()
        if ledger.mean_s[part] > 0
    ]  # fmt: skip
    rows.append(["step", _milliseconds(whole), "100.0 %", _milliseconds(ledger.step_median_s)])
    columns = ("part", "mean", "share", "median")
    yield from plain_table(columns, rows, right=columns[1:])
    yield (
        f"over {ledger.num_steps} steps of {ledger.num_ranks} ranks; the parts miss the step by "
        f"{100 * ledger.additivity_error:.2f} %"
    )
    if ledger.estimated:
        yield "computing and waiting are told apart by an estimate: torch's own DDP hides its waiting"
    if ledger.slowest_ratio is not None:
        times = f"{ledger.slowest_ratio:.2f} times the fastest's time"
        yield f"rank {ledger.slowest_rank} is the last to have its gradients: {times}"
    if (within_s := ledger.clock_uncertainty_s) is not None:
        yield f"the hosts' clocks were compared to within {_milliseconds(within_s)}: so much may peers and link be off"
    if ledger.peers_reason:
        yield f"waiting is not split into peers and link: {ledger.peers_reason}"


def _bytes(status: Status | None, link: LinkRecord | None, environment: Environment | None) -> Iterator[str]:
    if status is not None and status.payload_bytes is not None:
        each = f", {size(status.payload_bytes / status.steps)} a step" if status.steps else ""
        until = f", {size(status.payload_bytes_to_target)} to target" if status.payload_bytes_to_target else ""
        yield f"payload  {size(status.payload_bytes)} sent by all ranks{each}{until}"
    wire = link.wire if link is not None else None
    if wire is not None and wire.bytes is not None:
        each = f", {size(wire.per_step_bytes)} a step" if wire.per_step_bytes is not None else ""
        ratio = f"; {wire.ratio:.3f} of the payload" if wire.ratio is not None else ""
        sent = wire.bytes - (wire.ack_bytes or 0)
        apart = f"; acknowledgements apart: {size(wire.ack_bytes)}" if wire.ack_bytes is not None else ""
        yield f"wire     {size(sent)}{each}{ratio}{apart}"
        if environment is not None and any(len(ranks) > 1 for ranks in environment.ranks_by_interface.values()):
            yield "         what ranks of one host say to one another leaves by no interface, and is not in it"


def _evaluations(points: Sequence[CurvePoint]) -> Iterator[str]:
    if not points:
        yield "none"
        return
    metrics = list(points[0].metrics)
    columns = ("step", "samples", "clock", *metrics, "target")
    rows = [
        [str(point.step), str(point.samples), seconds(point.clock_s),
         *("-" if (value := point.metrics.get(metric)) is None else f"{value:.4g}" for metric in metrics),
         "met" if point.target_met else "-"]
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


def _duration(value: float | None) -> str:
    return "-" if value is None else DURATION.format(float(f"{value:.3g}"))


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{1000 * value:.3f} ms"
