"""What ``bwbench --help`` and the help of every command show, and that it is there at once."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from bwbench.cli.command_help import COMMANDS, GROUPS, OF_ALL, flowing
from bwbench.cli.main import _run, app

HEAVY = ("torch", "numpy", "pydantic", "yaml", "pandas", "matplotlib")


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, and every group of commands, by the words after ``bwbench``."""
    group = group or typer.main.get_command(app)
    context = group.make_context("bwbench", ["x"], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name), command
        if hasattr(command, "list_commands"):
            yield from commands(command, (*path, name))


ALL = {" ".join(path): command for path, command in commands()}
NAMES = list(ALL)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert _run([*words, "--help"]) == 0
    return capsys.readouterr().out


def test_help_loads_nothing_that_it_can_do_without() -> None:
    code = "import sys; from bwbench.cli.main import _run; _run(['--help']); print(*sys.modules, file=sys.stderr)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()
    )
    assert not loaded & {*HEAVY, "bwbench.base.registry", "bwbench.cli.link.link_commands"}


def test_help_leaves_out_what_typer_loads_for_nothing_and_others_find_it() -> None:
    code = """
import sys, typer.main
before = set(sys.modules)
from bwbench.cli.main import _run
_run(["--help"])
unneeded = {"rich.markdown", "rich.traceback", "markdown_it", "pygments"} & (set(sys.modules) - before)
from rich.markdown import Markdown
print(sorted(unneeded), Markdown("*x*").markup, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[] *x*"


def test_every_command_has_its_group_and_two_examples_and_no_entry_is_left_over() -> None:
    missing = sorted({*NAMES} - {*COMMANDS})
    assert not missing, f"COMMANDS in bwbench/cli/command_help.py lacks {', '.join(missing)}"
    assert {*COMMANDS} == {*NAMES}
    for name, about in COMMANDS.items():
        assert about.group in GROUPS, name
        assert len(about.examples) >= 2, f"{name}: two examples or more"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("columns", ["60", "80"])
def test_the_help_of_a_command(
    name: str, columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = shown(capsys, *name.split())
    shown_options, _, examples = text.partition(" Examples:\n")
    named = re.split("─ Options ─|^Options:", shown_options, maxsplit=1, flags=re.MULTILINE)[1]
    cut = [option for parameter in ALL[name].params for option in parameter.opts[:1] if f" {option} " not in named]
    assert not [option for option in cut if option.startswith("--")], shown_options
    assert not re.search(r"<\w+>", text), "a metavar that says nothing; give the option one"
    assert not re.search(r"\b(?:TEXT|PATH|INTEGER|FLOAT|BOOLEAN)\b", named), "as above"
    lines = [line for _, line in COMMANDS[name].examples]
    assert all(part in examples for line in lines for part in line.split("\n"))
    assert max(map(len, examples.splitlines())) <= 100
    assert max(map(len, shown_options.splitlines())) <= int(columns)
    assert ("╭" in text) == (columns == "80"), "panels, where nothing has to be cut for them"


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_what_the_command_takes(name: str) -> None:
    for what, line in COMMANDS[name].examples:
        assert what and not what.endswith("."), what
        words = shlex.split(line.partition(" > ")[0].replace("\\\n", ""))
        words = words[next(number for number, word in enumerate(words) if word == "bwbench") + 1 :]
        assert " ".join(words).startswith(name), line
        command = typer.main.get_command(app)
        context = command.make_context("bwbench", list(words))
        while hasattr(command, "resolve_command"):
            _, command, words = command.resolve_command(context, words)
            context = command.make_context(command.name, list(words), parent=context)


def test_groups_and_their_commands_stand_in_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(capsys)
    assert [text.index(group) for group in GROUPS] == sorted(text.index(group) for group in GROUPS)
    for group in GROUPS:
        panel = text[text.index(group) :].partition("╰")[0]
        expected = [name for name, about in COMMANDS.items() if about.group == group and " " not in name]
        assert re.findall(r"^│ (\S+)", panel, re.MULTILINE) == expected, group
    assert all(line in text for _, line in OF_ALL.examples)
    monkeypatch.setenv("COLUMNS", "60")
    sections = re.split(r"^(\S.*):\n", shown(capsys), flags=re.MULTILINE)
    listed = {
        title: re.findall(r"^  (\S+)  ", body, re.MULTILINE)
        for title, body in zip(sections[1::2], sections[2::2], strict=True)
    }
    for group in GROUPS:
        assert listed[group] == [name for name, about in COMMANDS.items() if about.group == group and " " not in name]


@pytest.mark.parametrize("words", [[], ["link"], ["data"]])
def test_without_a_word_the_help_is_shown(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(words) == 0
    alone = capsys.readouterr()
    assert alone.out == shown(capsys, *words) and not alone.err


def test_python_runs_the_package(tmp_path: Any) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('a file of the user was taken for a module')")
    done = subprocess.run(
        [sys.executable, "-m", "bwbench", "--version"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stdout.startswith("bwbench "), done.stderr


def test_paragraphs_flow_and_brackets_are_no_marks_of_rich() -> None:
    assert flowing("one\n    two\n\nthree [a, b] [1]") == "one two\n\nthree \\[a, b] [1]"


def test_the_commands_of_link_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "link")
    order = [text.index(f" {name} ") for name in ("verify", "run", "presets", "show", "record", "apply", "clear")]
    assert order == sorted(order)
    assert _run(["link", "shwo"]) == 2
    assert "Did you mean 'show'?" in capsys.readouterr().err
