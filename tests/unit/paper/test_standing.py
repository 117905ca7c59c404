"""What was published is set beside what the records say now."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures_paper import write_records

from bwbench.base.errors import ConfigError
from paper.program.claim import Claim
from paper.program.claimed_cells import Records
from paper.program.standing import (
    FELL,
    SAID_OTHERWISE,
    STANDS,
    TOLD_NOW,
    UNKNOWN,
    WITHDRAWN,
    Published,
    load_published,
    standings,
    table,
)


def test_each_verdict(tmp_path: Path) -> None:
    records = Records(write_records(tmp_path))
    where = {"link.bandwidth": "10 Mbit/s"}
    ratio = Claim(name="x", experiment="study", kind="ratio", arm="ring-fp16", over="ddp", where=where)
    nodes = Claim(name="nodes", experiment="study", kind="config", key="nodes")
    nobody = Claim(name="gone", experiment="study", kind="value", arm="nobody", where=where)
    claims = {"fell": ratio, "told": ratio, "other": ratio, "stands": nodes, "unknown": nobody}
    published = {
        "fell": Published(said="0.5", side=-1),
        "told": Published(said="1.0", side=0),
        "other": Published(said="9 (n = 3)", side=1),
        "stands": Published(said="4 (n = 18, composed)", side=0),
        "unknown": Published(said="3 s", side=0, why="not run"),
        "gone": Published(said="7", side=1),
    }
    found = {one.name: one for one in standings(published, claims, records)}
    published["stands"] = Published(said=found["stands"].now, side=0)
    found = {one.name: one for one in standings(published, claims, records)}
    assert {name: one.verdict for name, one in found.items()} == {
        "fell": FELL, "told": TOLD_NOW, "other": SAID_OTHERWISE,
        "stands": STANDS, "unknown": UNKNOWN, "gone": WITHDRAWN,
    }  # fmt: skip
    text = table(iter(found.values()))
    assert text.startswith("Of 6 numbers 1 stand; ") and "| 9 (n = 3) |" in text and "not run |" in text


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("a: {said: 3}\n")
    with pytest.raises(ConfigError, match="not readable as published numbers"):
        load_published(tmp_path / "p.yaml")
