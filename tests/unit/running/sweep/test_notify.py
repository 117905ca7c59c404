"""The user's command: told by its environment, never longer than its limit, and never fatal."""

from __future__ import annotations

from pathlib import Path

from bwbench.records.schema import Status
from bwbench.running.sweep import plan_sweep
from bwbench.running.sweep.account import Notifier
from tests.unit.running.sweep.studies import write_study


def notified(tmp_path: Path, command: str, reason: str, limit_s: float = 10.0) -> list[str]:
    item = plan_sweep([write_study(tmp_path)], tmp_path / "results").selected[0]
    said: list[str] = []
    Notifier(command, said.append, limit_s).cell_failed(item, Status(id="0", slug="x", status="failed", reason=reason))
    return said


def test_values_are_never_read_by_the_shell(tmp_path: Path) -> None:
    reason = f"$(touch {tmp_path}/hacked) `touch {tmp_path}/hacked`; touch {tmp_path}/hacked\n'\"\0 end"
    command = f'printf %s "$BWBENCH_EVENT|$BWBENCH_STATUS|$BWBENCH_EXPERIMENT|$BWBENCH_REASON" > {tmp_path}/told'
    assert notified(tmp_path, command, reason) == []
    told = (tmp_path / "told").read_text()
    assert told == f"cell|failed|study|{reason}".replace("\0", "") and not (tmp_path / "hacked").exists()


def test_a_command_that_fails_or_hangs_is_said(tmp_path: Path) -> None:
    assert "exit status 3" in notified(tmp_path, "exit 3", "")[0]
    assert "exit status 127" in notified(tmp_path, "no-such-program-here 2>/dev/null", "")[0]
    assert "longer than" in notified(tmp_path, "sleep 900 & sleep 900", "", limit_s=0.3)[0]  # and not waited for


def test_the_end_has_counts(tmp_path: Path) -> None:
    said: list[str] = []
    command = f'echo "$BWBENCH_EVENT $BWBENCH_STATUS $BWBENCH_DONE/$BWBENCH_TOTAL" > {tmp_path}/told'
    Notifier(command, said.append).ended("failed", "3 done, 1 failed", {"done": 3, "failed": 1})
    assert (tmp_path / "told").read_text() == "end failed 3/4\n" and not said
    Notifier(None, said.append).ended("done", "", {})
