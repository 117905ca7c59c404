"""Which failures count towards stopping an arm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bwbench.network.link.node_link import TcpSettings
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


def test_links_that_read_the_same_are_not_the_same(tmp_path: Path) -> None:
    write_study(tmp_path, repeats=MOST_ALIKE, arms="ring")
    planned = plan_sweep([tmp_path / "study.yaml"], tmp_path / "results").planned
    config = planned[0].cell.config
    other = config.link.model_copy(update={"tcp": TcpSettings(receive_buffer="1 MB")})
    assert other.describe() == config.link.describe()
    unlike = replace(planned[0], cell=replace(planned[0].cell, config=config.model_copy(update={"link": other})))
    arms = StoppedArms()
    for number in range(MOST_ALIKE):
        arms.note(planned[0], Status(id=str(number), slug="x", status="invalid", reason="late"))
    assert arms.why_not(unlike) is None
    assert f"on {config.link.describe()}: {MOST_ALIKE} cells invalid" in str(arms.why_not(planned[0]))
