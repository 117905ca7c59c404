"""Algorithms and collectives that were written for bwbench 0.1 are refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.experiment.config.resolve import resolve

RAW = {"nodes": 2, "link": "unshaped", "model": "logistic", "dataset": "digits", "limit": {"samples": 640}}


@pytest.mark.parametrize("kind, usual", [("algorithm", "every-step"), ("collective", "ring")])
def test_old_verbs_are_said(kind: str, usual: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def clear_gradients(self: object) -> None: ...
    def _average(self: object, bucket: object, codec: object, tag: int) -> None: ...

    registry = {"algorithm": ALGORITHMS, "collective": COLLECTIVES}[kind]
    verbs = {"clear_gradients": clear_gradients} if kind == "algorithm" else {"_average": _average}
    old = type("Old", (registry.load(usual),), verbs)
    monkeypatch.setitem(registry._classes, usual, old)
    found = resolve({**RAW, "algorithm": "every-step", "collective": "ring"}, (), tmp_path)
    assert [finding.message for finding in found.findings] == [
        f"{kind} {usual!r} has the verbs of bwbench 0.1, which are others now; "
        "'A new method' in docs/architecture.md names them"
    ]
