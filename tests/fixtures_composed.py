"""Composed cells that no sweep has made, with the hidden runs that they rest on."""

from __future__ import annotations

import shutil
from pathlib import Path

from bwbench.records import CellFolder, read_json, write_json_atomic
from bwbench.records.cell_identity import recorded_identity
from bwbench.results.analysis.trial import curve_of, summarise_ledger

CONVERGENCE_S, TIMING_S = 7.0, 5.0


def compose(folder: Path, factor: float = 1.02, whole: bool = False) -> float:
    """Give a cell a composed result that is ``factor`` times its whole one; returns its time to the target.

    Without ``whole`` the cell loses its own attempt, as if it had only been composed. Its convergence run is named
    ``conv-<arm>``, its timing run by its id.
    """
    cell = CellFolder(folder)
    status, events = read_json(folder / "status.json"), cell.events()
    time_s = factor * status["time_to_target_s"]
    curve = [{**point.to_json(), "clock_s": factor * point.clock_s} for point in curve_of(events)]
    ledger = summarise_ledger(events)
    assert ledger is not None
    config = cell.cell.config
    unshaped = {**config, "link": {"shaped": False}, "seed": 0, "evaluate": {"every": "1 samples"}}  # one an arm
    parts = {recorded_identity(part): part for part in (unshaped, {**config, "accumulate": 2})}
    convergence, timing = parts
    sources = {"convergence": convergence, "timing": timing, "interval_s": [0.95 * time_s, 1.05 * time_s],
               "timed_steps": 24, "max_payload_ratio": 1.0}  # fmt: skip
    content = {"schema": 1, "id": cell.cell.id, **sources, "time_to_target_s": time_s, "censored_at_s": None,
               "training_clock_s": time_s, "reason": "target", "kinds": [], "curve": curve, "ledger": ledger.to_json(),
               "gradient_bytes": 80_000, "link": {**cell.raw("link.json"), "wire": None},
               "environment": cell.raw("environment.json")}  # fmt: skip
    write_json_atomic(folder / "composed.json", content)
    experiment = folder.parent
    for store, name, wall_s in ((experiment.parent / ".convergence", convergence, CONVERGENCE_S),
                                (experiment / ".timing", timing, TIMING_S)):  # fmt: skip
        place = store / f"part-{name}"
        place.mkdir(parents=True, exist_ok=True)
        write_json_atomic(
            place / "cell.json", {**cell.cell.to_json(), "id": name, "slug": "part", "config": parts[name]}
        )
        write_json_atomic(
            place / "status.json", {"schema": 1, "id": name, "slug": "part", "status": "done", "wall_s": wall_s}
        )
    if not whole:
        shutil.rmtree(folder / "attempt-1")
        write_json_atomic(
            folder / "status.json", {**status, "attempt": 0, "time_to_target_s": time_s, "composed": sources}
        )
    return time_s
