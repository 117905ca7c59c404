"""What the page shows of one cell on demand: its link, its ledger, its machine and the end of its log."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bwbench.records import CellFolder
from bwbench.records.schema import PARTS, LedgerSummary, MeasuredPair
from bwbench.results.analysis.caveats import commit_of, host_of

LOG_LINES = 12
LOG_LETTERS = 1500  # of a line of a progress bar alone there may be megabytes
_MIDDLES = ("asked_bps", "asked_goodput_bps", "achieved_goodput_bps", "asked_rtt_s", "achieved_rtt_s")
_Numbers = Callable[[list[float]], float]

Facts: TypeAlias = dict[str, object]  # for JSON


def link_facts(folder: CellFolder) -> Facts | None:
    """What was asked of the link and what probes before and after saw: medians over pairs of nodes, and the worst."""
    link = folder.link
    if link is None:
        return None
    pairs = [pair for measured in link.measurements for pair in measured.pairs]
    facts: Facts = {name: _over(pairs, name, statistics.median) for name in _MIDDLES}
    facts["worst_goodput_bps"] = _over(pairs, "achieved_goodput_bps", min)
    facts["worst_rtt_s"] = _over(pairs, "achieved_rtt_s", max)
    facts["backend"] = link.backend
    facts["verdicts"] = [measured.verdict for measured in link.measurements if measured.verdict]
    facts["lateness_p99_s"] = rounded(link.emulator.lateness_p99_s)
    facts["num_probes"] = len(pairs)
    return {name: value for name, value in facts.items() if value not in (None, [], 0)} or None


def ledger_facts(ledger: LedgerSummary | None) -> Facts | None:
    """Mean seconds of each part of a step, in the order of ``PARTS``, and what is to be known of them."""
    if ledger is None:
        return None
    facts: Facts = {
        "mean_s": [rounded(ledger.mean_s.get(part, 0.0), 4) for part in PARTS],
        "step_s": rounded(ledger.step_mean_s, 4),
        "num_steps": ledger.num_steps,
    }
    if ledger.estimated:
        facts["estimated"] = True
    if ledger.peers_reason:
        facts["peers_reason"] = ledger.peers_reason
    if not ledger.adds_up:
        facts["off_by"] = rounded(ledger.additivity_error, 3)
    return facts


def environment_facts(folder: CellFolder) -> Facts | None:
    """Where and by what a cell was made, without what differs from run to run."""
    environment = folder.environment
    if environment is None:
        return None
    facts: Facts = {
        "host": host_of(environment),
        "cpu": environment.cpu,
        "cores": environment.cores,
        "memory_bytes": environment.memory_bytes,
        "kernel": environment.kernel,
        "python": environment.python,
        "bwbench": environment.bwbench,
        "commit": commit_of(environment),
        **dict(sorted(environment.packages.items())),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def log_tail(folder: CellFolder) -> str | None:
    """The last lines of the logs: of the rank that failed, else of rank 0; None where none was kept."""
    tails = {name: lines for name, lines in sorted(folder.log_tails().items()) if any(line.strip() for line in lines)}
    if not tails:
        return None
    name, lines = next(iter(tails.items()))
    return f"{name.removesuffix('.log')}: " + "\n".join(lines[-LOG_LINES:])[-LOG_LETTERS:].strip()


def _over(pairs: Sequence[MeasuredPair], name: str, numbers: _Numbers) -> float | int | None:
    found = [float(value) for pair in pairs if (value := getattr(pair, name)) is not None]
    return rounded(numbers(found)) if found else None


DIGITS = 6  # of a metric: an accuracy over a validation split of 100 000 samples stays exact
CLOCK_DIGITS = 5


@dataclass
class Pool:
    """Values that many cells share, by number: composed cells share their convergence run, all share a machine."""

    values: list[object] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)

    def add(self, value: object) -> int | None:
        """The number of ``value``, which is kept once; None for None."""
        if value is None:
            return None
        key = json.dumps(value, sort_keys=True)
        if key not in self._known:
            self._known[key] = len(self.values)
            self.values.append(value)
        return self._known[key]


def rounded(value: object, digits: int = CLOCK_DIGITS) -> float | int | None:
    """``value`` with so many significant digits; whole numbers without a point, None for what is no finite number."""
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if value != value or value in (float("inf"), float("-inf")):
        return None
    short = float(f"{float(value):.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
