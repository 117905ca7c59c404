"""What the pages tell a reader to type is what the program takes: commands everywhere, and the files of tutorials."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
import typer

from bwbench.base.registry import COMPRESSIONS, load_plugin
from bwbench.cli.main import app
from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan import build_plan
from bwbench.methods.compression.codec_contract import violations
from bwbench.network.link import Link
from bwbench.network.link.trace_file import read_trace
from bwbench.network.link.variation import Trace

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def commands(page: Path) -> list[tuple[str, bool]]:
    """Lines of indented code, continued ones joined; and what stands in backticks, which may be a part of a command."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    code = "\n".join(re.findall(r"^ {4,}(\S.*)$", re.sub(r" \\\n\s+", " ", text), re.M))
    inline = re.findall(r"`(bwbench [^`]+)`", re.sub(r"^ {4,}.*$", "", text, flags=re.M))
    lines = re.findall(r"^(?:\$ )?(?:\.venv/bin/|sudo )?(bwbench .*)$", code, re.M)
    found = [(line, False) for line in lines] + [(" ".join(part.split()), True) for part in inline]
    return [(line, is_part) for line, is_part in dict.fromkeys(found) if not re.search(r"[─…]| \[", line)]


COMMANDS = [(command, is_part) for page in PAGES for command, is_part in commands(page)]


def test_there_are_many() -> None:
    assert len(dict.fromkeys(COMMANDS)) > 150


def files_of(page: Path, folder: Path) -> Path:
    """A folder with every file that the page tells its reader to save, under the name in its first line."""
    for language, _, text in ((kind, None, text) for kind, text in FENCE.findall(page.read_text(encoding="utf-8"))):
        named = re.match(r"# ([\w.-]+\.(?:py|yaml))\n", text)
        if named:
            (folder / named[1]).write_text(text, encoding="utf-8")
        elif language == "csv":
            (folder / "walk.csv").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("command", "is_part"), dict.fromkeys(COMMANDS), ids=lambda value: str(value))
def test_a_command_is_one(command: str, is_part: bool) -> None:
    """Its words are parsed by the command itself, which is not run: every option is there, and takes that value."""
    words = shlex.split(command.partition(" > ")[0], comments=True)[1:]
    if words[:1] == ["--help"] or not words[0][0].islower():
        return  # of all commands; a command in capitals stands for any
    group = typer.main.get_command(app)
    context = group.make_context("bwbench", list(words))
    rest = [*context._protected_args, *context.args]
    while hasattr(group, "resolve_command"):
        name, group, rest = group.resolve_command(context, rest)
        if not rest and name != words[-1]:
            break
        if hasattr(group, "resolve_command"):
            context = group.make_context(name, rest, parent=context)
            rest = [*context._protected_args, *context.args]
    try:
        group.make_context(name, rest, parent=context)
    except Exception as error:
        if not (
            is_part and type(error).__name__ in ("MissingParameter", "NoArgsIsHelpError")
        ):  # `bwbench export --what steps`
            raise


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_its_python_is_python(page: Path) -> None:
    for text in blocks(page, "python"):
        ast.parse(text)


@pytest.mark.parametrize("name", ["my-link", "my-method", "two-offices"])
def test_its_experiment_is_valid(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COMPRESSIONS, "_entries", dict(COMPRESSIONS._entries))
    monkeypatch.setattr(COMPRESSIONS, "_classes", dict(COMPRESSIONS._classes))
    page = DOCS / "tutorials" / f"{name}.md"
    (text,) = blocks(page, "yaml")
    file = files_of(page, tmp_path) / "experiment.yaml"
    file.write_text(text, encoding="utf-8")
    experiment = load_experiment(file)
    assert not experiment.warnings
    assert len(build_plan(experiment).cells) in (10, 12, 15)


def test_the_file_of_the_offices_is_that_of_configs() -> None:
    assert blocks(DOCS / "tutorials" / "two-offices.md", "yaml") == [
        (ROOT / "configs" / "two_offices.yaml").read_text()
    ]


@pytest.mark.parametrize("levels", [1, 7, 127])
def test_its_codec_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, levels: int) -> None:
    monkeypatch.setattr(COMPRESSIONS, "_entries", dict(COMPRESSIONS._entries))
    monkeypatch.setattr(COMPRESSIONS, "_classes", dict(COMPRESSIONS._classes))
    load_plugin(files_of(DOCS / "tutorials" / "my-method.md", tmp_path) / "coarse.py")
    coarse = COMPRESSIONS.load("coarse")
    assert violations(lambda: coarse(coarse.Config(levels=levels))) == []


def test_its_trace_is_one(tmp_path: Path) -> None:
    file = files_of(DOCS / "tutorials" / "my-program.md", tmp_path) / "walk.csv"
    found = read_trace(Trace(file=str(file), measures="link"))
    assert found.format == "csv" and Link(trace={"file": str(file), "measures": "link"}, latency="5 ms")
