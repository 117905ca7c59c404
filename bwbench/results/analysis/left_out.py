"""What a table or picture does not show, in a sentence: cells that are not done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bwbench.records import CellFolder
from bwbench.results.analysis.cells import DONE, PLANNED, UNFINISHED, state_of

_NAMES_IN_A_NOTE = 6  # a longer list helps nobody under a picture; `bwbench status` has them all


def left_out_notes(folders: Iterable[CellFolder]) -> list[str]:
    """One note that counts and names the cells which are not drawn; none where all are."""
    by_state: dict[str, list[str]] = {}
    for folder in folders:
        if state_of(folder) != DONE:
            name = f"{folder.cell.arm} #{folder.cell.repeat}"
            by_state.setdefault(state_of(folder), []).append(name)
    if not by_state:
        return []
    parts = []
    for state, names in sorted(by_state.items()):
        counted = Counter(names)
        named = [name if times == 1 else f"{name} ({times}x)" for name, times in sorted(counted.items())]
        more = f" and {len(named) - _NAMES_IN_A_NOTE} more" if len(named) > _NAMES_IN_A_NOTE else ""
        words = {PLANNED: "not run yet", UNFINISHED: "unfinished"}.get(state, state)
        parts.append(f"{len(names)} {words} ({', '.join(named[:_NAMES_IN_A_NOTE])}{more})")
    return [f"Not drawn: {'; '.join(parts)}."]
