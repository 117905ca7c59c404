"""Which failures count towards stopping an arm."""

from __future__ import annotations

from pathlib import Path

from bwbench.records.schema import Status
from bwbench.running.sweep import plan_sweep
from bwbench.running.sweep.stopped_arms import MOST_ALIKE, StoppedArms
from tests.unit.running.sweep.studies import write_study


def test_a_run_that_composed_cells_share_fails_them_all_but_counts_once_an_attempt(tmp_path: Path) -> None:
    write_study(tmp_path, repeats=5, arms="ring")
    planned = plan_sweep([tmp_path / "study.yaml"], tmp_path / "results").planned
    assert len(planned) > 2 * MOST_ALIKE

    def failed(part: str) -> Status:
        reason = "cannot be composed: its timing run failed"
        return Status(id="0", slug="x", status="failed", reason=reason, undone_part=part)

    one, several = StoppedArms(), StoppedArms()
    for number, item in enumerate(planned[: 2 * MOST_ALIKE]):
        one.note(item, failed("0123456789/attempt-1"))
        several.note(item, failed(f"0123456789/attempt-{number}"))
    assert one.why_not(planned[-1]) is None
    assert "cannot be composed" in str(several.why_not(planned[-1]))
