"""README.md and docs/ say what the records say, between their markers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fixtures_commands import bwbench
from fixtures_paper import ROOT, write_records

from bwbench.base.errors import ConfigError
from paper.program.build import quotes_of
from paper.program.claim import Claim
from paper.program.claimed_cells import MissingRecordsError, Records
from paper.program.pages import HEADLINE, PAGES, PICTURE, draw_picture
from paper.program.pages import filled as filled_by
from paper.program.quotes import Quotes
from paper.program.standing import PUBLISHED, Published, load_published

RESULTS = ROOT / "results/published"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return Records(write_records(tmp_path_factory.mktemp("results")))


def filled(text: str, records: Records, **published: Published) -> str:
    where = {"link.bandwidth": "10 Mbit/s"}
    pair = Claim(name="pair", experiment="study", kind="ratio", arm="threshold", over="ddp", where=where)
    return filled_by(text, Quotes({"pair": pair}, records, {"ddp": "DDP"}), published)


def page(*asked: str) -> str:
    return "".join(f"Before.\n<!-- records: {one} -->\nold words\n<!-- end -->\nAfter.\n" for one in asked)


def test_what_stands_between_markers_is_made_anew(records: Records) -> None:
    asked = ("answer study at 10 Mbit/s", "answers study", "times study")
    text = filled(page(*asked), records)
    assert "old words" not in text and text.count("Before.") == text.count("After.") == len(asked)
    assert "**Four nodes, 10 Mbit/s, cnn on digits: use " in text
    assert "\n- 10 Mbit/s: use " in text and "\n- 100 Mbit/s: use " in text
    assert text.count("| arm |") >= 1
    assert filled(text, records) == text
    assert not [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]


def test_a_marker_may_ask_for_another_target(records: Records) -> None:
    own, lower = (filled(page(f"answer study at 10 Mbit/s{to}"), records) for to in ("", " to 0.70"))
    assert ": 95 % in " in own and ": 70 % in " in lower


def test_a_claim_words_itself_within_a_sentence_whose_lines_stay_short(records: Records) -> None:
    asked = f"- {'word ' * 18}\n  threshold <!-- says pair -->?<!-- end --> (<!-- claim pair -->?<!-- end -->)."
    text = filled(f"Head.\n\n- One.\n{asked}\n\n{'long ' * 40}\n", records)
    said = " ".join(re.sub("<!-- .*? -->", "", text).split())
    ends = r"[\d.]+ to [\d.]+"
    assert re.search(rf"threshold (is|takes) [^(]* DDP \({ends}\) \([\d.]+ \({ends}\)\)\.", said)
    item = text.partition("Head.\n\n")[2].partition("\n\nlong")[0]
    assert item.startswith("- One.\n- word") and max(map(len, item.splitlines())) <= 120
    assert text.endswith(f"{'long ' * 40}\n") and filled(text, records) == text
    with pytest.raises(ConfigError, match="says nobody.*no claim 'nobody' is declared"):
        filled("<!-- says nobody --><!-- end -->", records)


def test_the_table_of_those_that_stand_is_made_anew(records: Records) -> None:
    text = filled("<!-- standing -->\nold\n<!-- end -->\n", records, pair=Published(said="0.5", side=-1))
    assert "Of 1 numbers 0 stand" in text and "| `pair`: ratio, threshold over ddp" in text and "\nold\n" not in text


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ("answer study at 3 Mbit/s", ConfigError, "0 groups of cells have that link"),
        ("sums study", ConfigError, "no such kind; allowed: answer, answers"),
        ("answers other", MissingRecordsError, "no records of other"),
    ],
)
def test_what_cannot_be_made_is_said(records: Records, asked: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        filled(page(asked), records)


@pytest.mark.thorough  # reads every published record
def test_the_pages_say_what_the_records_say(tmp_path: Path) -> None:
    quotes, published = quotes_of(ROOT / "paper", RESULTS), load_published(ROOT / "paper" / PUBLISHED)
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert filled_by(text, quotes, published) == text, "python -m paper.program --pages"
    draw_picture(tmp_path / PICTURE.name, quotes.records)
    tables = [json.loads(path.with_suffix(".json").read_text())["table"]
              for path in (tmp_path / PICTURE.name, ROOT / PICTURE)]  # fmt: skip
    assert tables[0] == tables[1] and len({row["arm"] for row in tables[0]}) > 3
    assert HEADLINE in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_figures_that_are_kept_are_those_of_the_records(tmp_path: Path) -> None:
    kept = ROOT / "paper/figures/precision"  # composed, so that the rules of intervals are in it
    bwbench("plot", RESULTS / kept.name, "--all", "--at", "10Mbps", "--format", "pdf", "--out", tmp_path)
    made, there = (
        {path.name: json.loads(path.read_text())["table"] for path in folder.glob("*.json")}
        for folder in (tmp_path, kept)
    )
    assert made == there and made, "make paper-figures"
