"""The README: what stands on its first screen. tests/e2e/test_readme.py runs its commands."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from bwbench.experiment.config.load import load_experiment

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_SCREEN = TEXT.partition("\n## ")[0]
BLOCKS = re.findall(r"(?:^    \S.*\n)+", TEXT, re.MULTILINE)


def test_the_first_screen_has_question_answer_picture_and_three_commands() -> None:
    question, answer, picture, commands = (
        FIRST_SCREEN.find(part) for part in ("**On my link, which way", "**Four nodes, ", "![", "    make setup")
    )
    assert 0 < question < answer < picture < commands
    assert FIRST_SCREEN.count("![") == 1
    assert [line.split()[:2] for line in BLOCKS[0].splitlines()] == [
        ["make", "setup"], [".venv/bin/bwbench", "demo"], [".venv/bin/bwbench", "init"],
    ]  # fmt: skip
    assert len(FIRST_SCREEN.splitlines()) <= 40


def test_its_pictures_are_there() -> None:
    pictures = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", TEXT)
    assert pictures and all((ROOT / path).is_file() and len(words.split()) >= 8 for words, path in pictures)


def test_numbers_in_brackets_stand_in_the_answer_alone() -> None:
    """Intervals, n and crossovers live in docs/findings.md, one link away."""
    without_answer = re.sub(r"<!-- records.*?<!-- end -->", "", TEXT, flags=re.DOTALL)
    assert re.findall(r"\([^()\n]*\d[^()\n]* to [^()\n]*\d[^()\n]*\)", without_answer) == []
    assert "docs/findings.md" in FIRST_SCREEN


def test_the_experiment_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "my_question.yaml"
    file.write_text(text)
    assert yaml.safe_load(text)["name"] == file.stem
    assert load_experiment(file).name == file.stem
