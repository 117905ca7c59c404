from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from bwbench.base import interruption
from bwbench.base.interruption import Interruption

HANDLERS = """
import json, signal, sys
from bwbench.cli import main
sys.argv = ["bwbench", "--version"]
try:
    main.main()
except SystemExit:
    print(json.dumps({number.name: signal.getsignal(number) == signal.SIG_IGN for number in main.ENDING}))
"""


def handlers(*ignored: signal.Signals) -> dict[str, bool]:
    def ignore() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # whatever these tests were started by
            signal.signal(number, signal.SIG_DFL)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    command = [sys.executable, "-c", HANDLERS]
    done = subprocess.run(command, preexec_fn=ignore, capture_output=True, text=True, timeout=120, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_what_was_ignored_stays_ignored() -> None:
    """``nohup`` ignores SIGHUP, and a shell SIGINT of what it starts in the background."""
    assert handlers() == {"SIGINT": False, "SIGTERM": False, "SIGHUP": False}
    assert handlers(signal.SIGHUP, signal.SIGINT) == {"SIGINT": True, "SIGTERM": False, "SIGHUP": True}


def test_a_second_one_does_not_disturb_the_ending(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    now_s = 100.0
    monkeypatch.setattr(interruption.time, "monotonic", lambda: now_s)
    handler = Interruption()
    with pytest.raises(KeyboardInterrupt):
        handler(signal.SIGINT, None)
    now_s += 0.001
    handler(signal.SIGINT, None)
    assert "ending already" in capfd.readouterr().err
    now_s += interruption.PATIENCE_S
    with pytest.raises(KeyboardInterrupt):  # the ending hangs
        handler(signal.SIGTERM, None)
