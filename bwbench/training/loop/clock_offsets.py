"""How far the ranks' monotonic clocks are apart, found by messages: nobody's wall clock is believed.

A rank's answer was sent at some moment between rank 0's question and its arrival (Cristian, Probabilistic clock
synchronization, 1989): the fastest of many round trips says it best, and half of it is the most that this can be off.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from bwbench.training.loop.control import ControlPath

QUESTIONS = 20  # to each rank; the first one opens the connection
_ASK_TAG, _TELL_TAG = 9011, 9012


def compare_clocks(data: dist.ProcessGroup, control: ControlPath) -> list[dict[str, Any]]:
    """Ask every rank for its time; on all ranks at the same point, while nothing is sent.

    Returns on rank 0, for every other ``rank``: at ``mono_s`` of rank 0's clock its own showed ``offset_s`` more, give
    or take ``uncertainty_s``. Nothing on other ranks.
    """
    if control.rank != 0:
        _tell(data)
        return []
    return [_ask(data, rank) for rank in range(1, control.size)]


def _ask(data: dist.ProcessGroup, rank: int) -> dict[str, Any]:
    question, answer = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    rounds: list[tuple[float, float, float]] = []  # how long it took, its middle, what the other clock said
    for _ in range(QUESTIONS):
        asked_s = time.monotonic()
        data.send([question], rank, _ASK_TAG).wait()
        data.recv([answer], rank, _TELL_TAG).wait()
        heard_s = time.monotonic()
        rounds.append((heard_s - asked_s, (asked_s + heard_s) / 2, float(answer)))
    taken_s, middle_s, told_s = min(rounds)
    return {"rank": rank, "mono_s": middle_s, "offset_s": told_s - middle_s, "uncertainty_s": taken_s / 2}


def _tell(data: dist.ProcessGroup) -> None:
    question, answer = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for _ in range(QUESTIONS):
        data.recv([question], 0, _ASK_TAG).wait()
        answer[0] = time.monotonic()
        data.send([answer], 0, _TELL_TAG).wait()
