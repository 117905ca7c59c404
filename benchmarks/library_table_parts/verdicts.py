"""What the ends of all ranks come to, in one word; and whether that is good."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from library_table_parts.processes import End
from library_table_parts.rig import Case

_OF_THE_NETWORK = re.compile(
    r"EnforceNotMet|gloo/|Connection (closed|reset)|[Tt]imed? ?out|communication failed|Broken pipe|"
    r"Application timeout|Socket"
)


@dataclass(frozen=True)
class Outcome:
    """What one library did.

    Attributes:
        word: right, warned, refused, raises, ended, wrong, aborted or hangs.
        detail: how far off, or what was said.
    """

    word: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.detail}" if self.detail else self.word


def outcome(case: Case, truth: End | None, ends: Sequence[End]) -> Outcome:
    """``refused``: on all ranks, in words that say what is wrong. ``raises``: any other exceptions."""
    if died := [f"rank {rank} of {end.killed_by}" for rank, end in enumerate(ends) if end.killed_by]:
        return Outcome("aborted", ", ".join(died) + _last_line(ends))
    if hung := [str(rank) for rank, end in enumerate(ends) if end.hung]:
        return Outcome("hangs", f"rank {' and '.join(hung)}")
    reports = [end.report for end in ends]
    errors = [report.error if report is not None else "" for report in reports]
    if any(errors):
        return _of_errors(case, truth, ends, errors)
    if case.lost:
        return Outcome("wrong", "nobody says that a rank was lost")
    warned = [_warning(case, report.warnings) if report is not None else "" for report in reports]
    if truth is None:
        return Outcome("warned", warned[0]) if all(warned) else Outcome("wrong", "trains without a word")
    if truth.report is not None and truth.report.error:
        return Outcome("wrong", f"goes on where plain torch raises {_short(truth.report.error)}")
    off, what = _off(truth, ends)
    if off <= case.tolerance:
        return Outcome("right", f"{off:.0e}")
    if all(warned):
        return Outcome("warned", f"off by {off:.0e} ({what}): {warned[0]}")
    return Outcome("wrong", f"off by {off:.0e} ({what})")


def good(case: Case, outcome_: Outcome) -> bool:
    """Right, or refused by name; an error on all ranks where one is lost; a warning where the case allows it."""
    allowed = {"right", "refused"} | ({"ended"} if case.lost else set()) | ({"warned"} if case.warning else set())
    return outcome_.word in allowed


def _of_errors(case: Case, truth: End | None, ends: Sequence[End], errors: Sequence[str]) -> Outcome:
    said = max(errors, key=lambda error: (bool(error), not _OF_THE_NETWORK.search(error), len(error)))
    if truth is not None and truth.report is not None and truth.report.error:
        if all(_kind(error) == _kind(truth.report.error) for error in errors):
            return Outcome("right", f"raises as plain torch does: {_short(said)}")
    if case.lost:
        lost = 0 if case.lost == "first" else len(ends) - 1
        silent = [r for r, end in enumerate(ends) if r != lost and (end.report is None or not end.report.error)]
        if silent:
            return Outcome("raises", f"but rank {silent} not: {_short(said)}")
        return Outcome("ended", _short(next(error for rank, error in enumerate(errors) if rank != lost)))
    if not all(errors):
        silent = [str(rank) for rank, error in enumerate(errors) if not error]
        return Outcome("raises", f"but rank {' and '.join(silent)} not: {_short(said)}")
    named = all(
        not _OF_THE_NETWORK.search(error) and re.search(case.names, error, re.IGNORECASE) for error in errors
    ) and not said.startswith(("AttributeError", "TypeError", "KeyError", "AssertionError", "IndexError"))
    if named:
        return Outcome("refused", _short(said))
    worst = next((e for e in errors if _OF_THE_NETWORK.search(e)), said)
    return Outcome("raises", _short(said) + (f" | elsewhere: {_short(worst)}" if worst != said else ""))


def _kind(error: str) -> str:
    return error.partition(":")[0]


def _off(truth: End, ends: Sequence[End]) -> tuple[float, str]:
    """The largest difference over ranks and values, relative to the largest value of each."""
    assert truth.report is not None and truth.report.found is not None
    worst, where = 0.0, ""
    for rank, end in enumerate(ends):
        found = end.report.found if end.report is not None else None
        if found is None or found.keys() != truth.report.found.keys():
            return float("inf"), f"rank {rank} has not {sorted(truth.report.found)}"[:100]
        for name, right in truth.report.found.items():
            off = _distance(found[name], right)
            if off > worst:
                worst, where = off, f"rank {rank}, {name}"
    return worst, where


def _distance(found: torch.Tensor, right: torch.Tensor) -> float:
    if found.shape != right.shape:
        return float("inf")
    if right.numel() == 0 or torch.equal(torch.nan_to_num(found, 7e77), torch.nan_to_num(right, 7e77)):
        return 0.0
    off = float((found - right).abs().max() / right.abs().max().clamp_min(1e-3))
    return off if off == off else float("inf")


def _warning(case: Case, warnings: Sequence[str]) -> str:
    found = [text for text in warnings if case.names and re.search(case.names, text, re.IGNORECASE)]
    return _short(found[0]) if found else ""


def _short(text: str) -> str:
    return " ".join(text.split())[:260]


def _last_line(ends: Sequence[End]) -> str:
    words = [end.last_words for end in ends if end.killed_by and end.last_words]
    lines = [line for line in words[0].splitlines() if "terminate" in line or "what()" in line] if words else []
    return f": {_short(' '.join(lines))}" if lines else ""
