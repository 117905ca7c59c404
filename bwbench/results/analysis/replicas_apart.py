"""Cells whose nodes ended with unlike replicas, although their method promises the same bits on all of them.

Where every node averages with all others in every step, all hold the same model. If they do not at the end, something
did not arrive: a codec that keeps at home what it should send, a decoder that is not the same everywhere, a collective
that adds up in another order. Each node has then trained a model of its own, and bytes and time are of no method.
Whether that is so is decided here, by what the method declares and what the nodes recorded, whatever it is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bwbench.methods.roles import AFTER_EVERY_STEP, replicas_equal_by_name

PROMISE = "the same bits on all nodes after every step"


def replicas_apart(row: Mapping[str, Any], recorded: str | None) -> bool:
    """Whether the nodes of a cell ended with unlike replicas, and its method promises equal ones after every step.

    False of methods that let replicas differ between two rounds, and where records do not tell.

    Args:
        row: with ``algorithm``, ``collective`` and ``replicas_identical``.
        recorded: what ``cell.json`` says of the method; None in older ones, whose components are asked.
    """
    if row["replicas_identical"] is not False:
        return False
    promised = recorded or replicas_equal_by_name(row["algorithm"], row["collective"])
    return promised == AFTER_EVERY_STEP


def replicas_apart_note(rows: Iterable[Mapping[Any, Any]], labels: Mapping[str, str] | None = None) -> str | None:
    """What must be said of such cells wherever their times are shown; None where there are none.

    Args:
        rows: of all cells that are shown, with ``arm`` and ``replicas_apart``.
        labels: what arms are called there, by their recorded names; these where it has none.
    """
    by_arm: dict[str, list[bool]] = {}
    for row in rows:
        by_arm.setdefault(str(row["arm"]), []).append(row.get("replicas_apart") is True)
    found = [f"{(labels or {}).get(arm, arm)} in {sum(apart)} of {len(apart)} cells"
             for arm, apart in sorted(by_arm.items()) if any(apart)]  # fmt: skip
    if not found:
        return None
    return (
        f"Broken: {', '.join(found)} ended with unlike replicas, and the method promises {PROMISE}. Something that "
        "nodes need of one another does not arrive, so that each has trained a model of its own: believe neither time "
        "nor bytes. Ask the contract of its codec, collective and algorithm."
    )
