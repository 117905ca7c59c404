"""The section of any experiment: compiles, says no more than intervals support, and is the same every time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.base.errors import ConfigError
from bwbench.results.analysis.ratio import Ratio
from bwbench.results.analysis.results import load_results
from bwbench.results.section import write_section
from bwbench.results.section.content import ratio_words
from bwbench.results.text import MarkdownWriter

NASTY = r"<script>a_b|5%$x\y{&#^~"

PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{booktabs,lmodern}
\begin{document}
\input{section}
\end{document}
"""


def _study(root: Path, **settings: object) -> Path:
    defaults = {
        "arms": ("ddp", "ring-fp16", "threshold", "single"),
        "bandwidths_mbps": (10.0, 100.0),
        "samples_scale": 1500.0,
    }
    write_study(root, Study(**{**defaults, **settings}))  # type: ignore[arg-type]
    return root


def _section(root: Path, format: str = "markdown") -> str:
    return write_section(load_results(root), format)  # type: ignore[arg-type]


def _renamed(root: Path, name: str) -> None:
    """An arm, a model and a host of that name, as a plugin and a YAML file could bring them."""
    for path in root.rglob("cell.json"):
        cell = json.loads(path.read_text())
        cell["arm"] = name if cell["arm"] == "threshold" else cell["arm"]
        cell["config"]["model"]["name"] = name
        path.write_text(json.dumps(cell))
    for path in root.rglob("environment.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "host": name}))


def _compile(folder: Path, text: str) -> str:
    if shutil.which("pdflatex") is None:
        pytest.skip("needs pdflatex (Debian: texlive-latex-recommended, lmodern)")
    (folder / "section.tex").write_text(text)
    (folder / "paper.tex").write_text(PREAMBLE)
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_latex_compiles_with_names_that_are_traps(tmp_path: Path) -> None:
    root = _study(tmp_path / "results", limit_s=60.0, statuses={("ddp", 2): ("failed", NASTY)})
    _renamed(root, NASTY)
    _compile(tmp_path, _section(root, "latex"))


def test_tables_fit_a_page(tmp_path: Path) -> None:
    root = _study(tmp_path / "results", bandwidths_mbps=(1.0, 2.0, 5.0, 10.0, 20.0, 54.0, 100.0, 300.0, 1000.0))
    assert "Overfull" not in _compile(tmp_path, _section(root, "latex"))


def test_markdown_escapes_names(tmp_path: Path) -> None:
    root = _study(tmp_path)
    _renamed(root, NASTY)
    text = _section(root)
    assert "<script>" not in text.replace(r"\<script\>", "")
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {line.replace(r"\|", "").count("|") for line in table.splitlines()}
        assert len(widths) == 1, table  # a name with a bar opens no column


def test_the_same_records_give_the_same_text(tmp_path: Path) -> None:
    root = _study(tmp_path)
    for format in ("markdown", "latex"):
        assert _section(root, format) == _section(root, format)


def test_every_part_is_there(tmp_path: Path) -> None:
    text = _section(_study(tmp_path, statuses={("ddp", 2): ("failed", "rank 1 died")}))
    for heading in ("Time to accuracy", "Speed-up over ddp", "Final accuracy", "Links asked for", "Cells left out"):
        assert f"### {heading}" in text
    assert "2 failed" in text and "rank 1 died" in text
    assert "4 nodes shared 2 cores" in text


def test_latex_numbers_are_macros_at_the_top(tmp_path: Path) -> None:
    text = _section(_study(tmp_path), "latex")
    top, _, body = text.partition(r"\section")
    assert r"\newcommand{\bwNodes}{4}" in top and r"\bwNodes{}" in body
    assert r"\newcommand" not in body


def test_a_target_that_nobody_reaches_is_shown_as_a_limit(tmp_path: Path) -> None:
    text = _section(_study(tmp_path, limit_s=1.0, bandwidths_mbps=(1.0,)))
    assert re.search(r"\\> \d", text)
    assert "ended at their limit" in text


def test_first_crossings_are_marked_and_doubted(tmp_path: Path) -> None:
    text = _section(_study(tmp_path))
    assert "‡ first crossing: the first evaluation that met the target." in text
    assert re.search(r"\d‡", text)
    assert "cells have the time of the first evaluation that met the target" in text


def test_arms_have_their_labels_and_one_sentence_says_what_they_were_recorded_as(tmp_path: Path) -> None:
    text = _section(_study(tmp_path, arms=("ddp", "ring-int8", "single"), statuses={("ring-int8", 2): ("failed", "")}))
    assert "int8 (recorded as ring-int8)" in text and text.count("ring-int8") == 1
    assert len(re.findall(r"^\| int8 \|", text, re.MULTILINE)) >= 3, "times, speed-ups and final accuracy"
    macros = _section(tmp_path, "latex").partition(r"\section")[0]
    assert "RingIntEight" in macros, "what names a number does not change with the arms beside it"


def test_one_seed_is_a_threat_and_gives_no_interval(tmp_path: Path) -> None:
    text = _section(_study(tmp_path, repeats=1))
    assert "One seed" in text and "no interval" in text
    assert "is first" not in text  # the shortest time of one repeat is no more than that


def test_without_target_or_baseline_there_is_still_a_section(tmp_path: Path) -> None:
    assert "Time to accuracy" not in _section(_study(tmp_path / "a", target=None))
    assert "Speed-up" not in _section(_study(tmp_path / "b", arms=("ring",)))


def test_nothing_done_is_said(tmp_path: Path) -> None:
    arms = ("ddp", "ring")
    states = {(arm, repeat): ("missing", "") for arm in arms for repeat in range(3)}
    assert "not run yet" in _section(_study(tmp_path, arms=arms, statuses=states))
    with pytest.raises(ConfigError, match="no cell"):
        write_section([], "markdown")


@pytest.mark.parametrize(
    ("ratio", "side", "text"),
    [
        (Ratio(2.0, 1.5, 2.5, 3), 1, "2.00 (95 % interval 1.50 to 2.50, n = 3)"),
        (Ratio(1.2, 0.9, 1.5, 3), 0, "1.20 (95 % interval 0.900 to 1.50, n = 3)"),
        (Ratio(0.5, 0.4, 0.6, 3), -1, "0.500 (95 % interval 0.400 to 0.600, n = 3)"),
        (Ratio(1.0002, 1.0001, 1.0003, 3), 1, "1.0002 (95 % interval 1.0001 to 1.0003, n = 3)"),
        (Ratio(3.0, None, None, 3, ">", 1), 1, r"\> 3.00 (bound, target not reached by 1, n = 3)"),
        (Ratio(0.9, None, None, 3, ">", 1), 0, r"\> 0.900 (bound, target not reached by 1, n = 3)"),
        (Ratio(2.0, None, None, 1), 0, "2.00 (no interval, n = 1)"),
    ],
)
def test_a_ratio_says_what_its_interval_supports(ratio: Ratio, side: int, text: str) -> None:
    words = ratio_words(ratio, "x")
    assert words is not None and words.side == side
    assert MarkdownWriter().write((*words.value, " ", *words.basis)) == text


def test_slow_motion_is_said(tmp_path: Path) -> None:
    assert "a second of training" not in _section(_study(tmp_path / "plain", arms=("ddp", "single"), repeats=2))
    slow = _section(_study(tmp_path / "slow", arms=("ddp", "ring-fp16"), repeats=2, extra={"dilation": 8.0}))
    assert "a second of training took 8 of the machine" in slow


def test_what_was_shrunk_is_said(tmp_path: Path) -> None:
    said = "were divided by"
    assert said not in _section(_study(tmp_path / "whole", arms=("ddp", "ring-fp16"), repeats=2))
    shrunk = _section(_study(tmp_path / "shrunk", arms=("ddp", "ring-fp16"), repeats=2, extra={"shrink": 4.0}))
    assert "Parameters and rates were divided by 4 in" in shrunk and " cells: times are those of the whole" in shrunk


def test_virtual_nodes_are_a_threat(tmp_path: Path) -> None:
    root = _study(tmp_path, arms=("ddp", "ring-fp16"), repeats=2, environment={"virtual": True})
    assert "their times say nothing" in _section(root)


@pytest.mark.parametrize("repeats", [1, 3])
def test_every_arm_is_faster_slower_or_undecided(tmp_path: Path, repeats: int) -> None:
    text = _section(_study(tmp_path, bandwidths_mbps=(10.0,), repeats=repeats))
    (told,) = re.findall(r"read as one statement \(together 95 %\): faster than ddp: (.*)\.$", text, re.MULTILINE)
    named = {part.rpartition(": ")[0] or "faster": part.rpartition(": ")[2].split(", ") for part in told.split("; ")}
    assert list(named) == ["faster", "slower", *(["undecided"] if repeats == 1 else named.keys() & {"undecided"})]
    arms = sorted(arm for found in named.values() for arm in found if arm != "none")
    assert arms == ["ring-fp16", "single", "threshold"]
    assert repeats > 1 or named["undecided"] == arms
