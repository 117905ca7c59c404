"""Ctrl-C in any command ends with 130 and a line that says how to go on."""

from __future__ import annotations

import pytest

from bwbench.cli.main import _run
from bwbench.cli.options import SweepOptions


def test_it_is_said_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(options: SweepOptions) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SweepOptions, "planned", interrupted)
    assert _run(["plan", "study.yaml"]) == 130
    assert capsys.readouterr().err == "interrupted; run the same command again to go on\n"
