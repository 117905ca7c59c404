"""Cells that reached their target before their nodes had sent one another anything: nodes that train alone.

A method that agrees every so many steps may be at its target before it has agreed once. Each node has then trained on
its own share, and the time says nothing of the method or its link, although it stands among those of the others.
Whether that is so is decided here, by the bytes that records count up to the arrival, whatever a method is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bwbench.methods.roles import METHOD


def arrived_alone(row: Mapping[str, Any]) -> bool:
    """Whether the nodes of a cell had sent nothing over their link when they reached the target.

    False of arms that are to send nothing (one node alone, free averages), of a target that was met before the first
    step, and where records do not tell.

    Args:
        row: with ``role``, ``nodes``, and ``samples_to_target`` and ``payload_bytes_to_target`` of ``arrival_of_cell``.
    """
    if row["role"] != METHOD or row["nodes"] < 2:
        return False
    return bool(row["samples_to_target"]) and row["payload_bytes_to_target"] == 0


def arrived_alone_note(rows: Iterable[Mapping[Any, Any]], labels: Mapping[str, str] | None = None) -> str | None:
    """What must be said of such cells wherever their times are shown; None where there are none.

    Args:
        rows: of all cells that are shown, with ``arm`` and ``arrived_alone``.
        labels: what arms are called there, by their recorded names; these where it has none.
    """
    by_arm: dict[str, list[bool]] = {}
    for row in rows:
        by_arm.setdefault(str(row["arm"]), []).append(row.get("arrived_alone") is True)
    found = [f"{(labels or {}).get(arm, arm)} in {sum(alone)} of {len(alone)} cells"
             for arm, alone in sorted(by_arm.items()) if any(alone)]  # fmt: skip
    if not found:
        return None
    return (
        f"At the target before its nodes had sent anything: {', '.join(found)}. That is the time of nodes that train "
        "alone, and says nothing of the method: ask for a harder target, or let it agree more often."
    )
