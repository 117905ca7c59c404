"""``bwbench doctor``: what it says of codecs; of links: tests/unit/network/probe/test_machine.py."""

from __future__ import annotations

import json
import re

import pytest

from bwbench.cli.machine_commands import doctor
from bwbench.methods import native
from bwbench.network.probe import machine


@pytest.mark.parametrize(
    "found, verdict, words",
    [
        (native.Found(None, "no C compiler was there"), "limited", "in Python, .* no C compiler was there"),
        (
            native.Found(object(), "compiled, for AVX2"),
            "ok",
            "dgc are compiled, for AVX2; so are int8 and sign where torch",
        ),  # type: ignore[arg-type]
    ],
)
def test_it_says_whether_codecs_are_compiled(
    found: native.Found, verdict: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "examine_machine", list)
    monkeypatch.setattr(native, "find", lambda: found)
    assert doctor(json=True) == 0
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["check"], finding["verdict"]) == ("codecs", verdict)
    assert re.search(words, finding["text"])
