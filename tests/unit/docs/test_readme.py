"""The README: what stands on its first screen, and commands that are commands (tests/e2e/test_readme.py runs them)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from bwbench.cli.main import app
from bwbench.experiment.config.load import load_experiment

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_SCREEN = TEXT.partition("\n## ")[0]
BLOCKS = re.findall(r"(?:^    \S.*\n)+", TEXT, re.MULTILINE)
COMMANDS = [line.strip() for block in BLOCKS for line in block.splitlines() if "bwbench " in line]


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


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_parse(line: str) -> None:
    words = shlex.split(line, comments=True)
    assert words[0] == ".venv/bin/bwbench"
    command, rest = typer.main.get_command(app), words[1:]
    context = command.make_context("bwbench", ["--help"], resilient_parsing=True)
    while hasattr(command, "get_command"):
        name, *rest = rest
        command = command.get_command(context, name)
        assert command is not None, f"no command {name!r}"
    command.make_context(name, rest)  # raises where an option or an argument is none


def test_the_experiment_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "my_question.yaml"
    file.write_text(text)
    assert yaml.safe_load(text)["name"] == file.stem
    assert load_experiment(file).name == file.stem
