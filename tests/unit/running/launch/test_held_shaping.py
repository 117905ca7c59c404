"""The keeper's hold on a shaper, with one that says what a test wants."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bwbench.running.launch.ssh.host_shaping as shaping_module
from bwbench.running.launch.ssh.host_shaping import HeldShaping, ShapingRequest

REQUEST = ShapingRequest(link={}, interface=None, peers=("b",), spared=(22,))
APPLIED = 'say(interface="wlan0", applied="10 Mbit/s")'


@pytest.fixture
def shaper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., HeldShaping]]:
    """Makes a shaper of some lines of Python."""
    made: list[HeldShaping] = []

    def make(*lines: str) -> HeldShaping:
        begin = (
            "import json, os, sys, time",
            "line = sys.stdin.readline()",
            "def say(**content): print(json.dumps(content), flush=True)",
        )
        (tmp_path / "made_up_shaper.py").write_text("\n".join([*begin, *lines]))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
        monkeypatch.setenv("HIDDEN", "token")
        monkeypatch.setattr(shaping_module, "SHAPER", "made_up_shaper")
        made.append(HeldShaping(REQUEST, hidden="HIDDEN"))
        return made[-1]

    yield make
    for shaping in made:
        shaping.end()


def wanted() -> None:
    return None


def test_nothing_is_asked_where_nothing_is_shaped() -> None:
    shaping = HeldShaping(None, hidden="X")
    assert shaping.begin(wanted) is shaping.problem() is shaping.end() is shaping.said is None


def test_it_holds_from_begin_to_end(shaper: Callable[..., HeldShaping]) -> None:
    lines = ('assert "HIDDEN" not in os.environ and json.loads(line)["peers"] == ["b"]', APPLIED, "sys.stdin.read()")
    shaping = shaper(*lines, 'say(restored=True, now="", before="")')
    assert shaping.begin(wanted) is None and shaping.problem() is None
    assert shaping.said == {"interface": "wlan0", "applied": "10 Mbit/s"}
    assert shaping.end() is None and shaping.end() is None


def test_why_it_could_not_be_shaped(shaper: Callable[..., HeldShaping]) -> None:
    assert shaper('say(problem="wlan0 is down")').begin(wanted) == "its interface was not shaped: wlan0 is down"
    assert "ended with status 5" in shaper("sys.exit(5)").begin(wanted)


def test_nobody_waits_for_it_when_the_run_is_not_wanted(shaper: Callable[..., HeldShaping]) -> None:
    shaping = shaper("sys.stdin.read()")
    assert shaping.begin(lambda: "told to stop") == "told to stop"
    assert shaping.end() is None


def test_a_limit_on_the_wait(shaper: Callable[..., HeldShaping], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaping_module, "BEGIN_LIMIT_S", 0.5)
    monkeypatch.setattr(shaping_module, "END_LIMIT_S", 0.5)
    shaping = shaper("time.sleep(60)")
    assert "not shaped within" in str(shaping.begin(wanted))
    assert "was not seen to be as before" in str(shaping.end())


def test_shaping_that_ends_too_early_is_a_problem(shaper: Callable[..., HeldShaping]) -> None:
    shaping = shaper(APPLIED, 'say(problem="somebody has cleared it meanwhile")')
    assert shaping.begin(wanted) is None
    assert shaping._process is not None
    shaping._process.wait(20)
    assert shaping.problem() == "its interface is no longer shaped: somebody has cleared it meanwhile"


def test_what_did_not_come_back_is_told(shaper: Callable[..., HeldShaping]) -> None:
    shaping = shaper(APPLIED, "sys.stdin.read()", 'say(restored=False, now="htb", before="fq_codel")')
    assert shaping.begin(wanted) is None
    assert shaping.end() == "its interface is not as before: htb instead of fq_codel"
