"""The picture of crossovers over their closed forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.results.text import plain
from paper.program.claim import Claim, Value
from paper.program.claimed_cells import Records
from paper.program.crossings import STEM, Crossing, draw_crossings
from paper.program.quotes import Quotes


def crossing(arm: str, form: float, measured: float | None) -> Crossing:
    claim = Claim(name="x", kind="closed form", experiment="study", arm=arm, over="single")
    return Crossing(claim, Value("scale", form, 3, 0.9 * form, 1.1 * form), Value("scale", measured, 3, None, None))


def test_how_many_lie_below_their_closed_form_and_how_far(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = [
        crossing("ring", 2.0, 1.6),
        crossing("ddp", 3.0, None),
        crossing("demo", 5.0, 7.5),
        crossing("a", 4.0, 2.0),
    ]
    monkeypatch.setattr(Quotes, "crossings", lambda _: found)
    quotes = Quotes({}, Records(tmp_path))
    assert plain(quotes.above()) == "2 of 3"
    assert plain(quotes.farthest()) == "2.00" and plain(quotes.farthest(but="a")) == "1.50"


def test_equal_crossings_give_equal_bytes_and_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    found = [crossing("ring", 2.0, 1.9), crossing("ddp", 3.0, None), crossing("muloco(period=16)", 20.0, 18.0)]
    names = ["ring", "DDP", "MuLoCo"]
    pictures = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        assert draw_crossings(folder, found, names) == STEM
        pictures.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert pictures[0] == pictures[1] and set(pictures[0]) == {f"{STEM}.pdf", f"{STEM}.png"}
    draw_crossings(tmp_path / "b", [found[0], found[2]], ["ring", "MuLoCo"])
    assert (tmp_path / "b" / f"{STEM}.png").read_bytes() == pictures[0][f"{STEM}.png"]
