"""What is printed: texts commands no terminal, and the program's own colours and moves still do."""

from __future__ import annotations

import io
import sys

import pytest
from rich.live import Live
from rich.text import Text

from bwbench.cli.clean_text import clean, cleaned, one_line
from bwbench.cli.output import new_table, plain_table, stderr, stdout


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


def test_pictures_stand_for_what_is_no_text() -> None:
    assert clean("größe → 5 µs\tok\n") == "größe → 5 µs\tok\n"
    assert clean("\x1b[31mred\x07\r\x7f\x9b\u202e\ud800") == "␛[31mred␇␍␡\ufffd\ufffd\ufffd"
    assert one_line("a\nb\tc") == "a␊b␉c"
    assert list(plain_table(["name", "n"], [["a\nb", "1"], ["\x1b[2J", "2"]])) == ["name  n", "a␊b   1", "␛[2J  2"]


def test_a_cleaned_stream_cleans_and_is_otherwise_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    stream = cleaned(whole)
    assert stream is not None
    print("größer", "\x1b[0m", file=stream, flush=True)
    stream.writelines(["a", "\x07"])
    stream.flush()
    assert stream.encoding == "utf-8"
    assert whole.detach().getvalue().decode() == "größer ␛[0m\na␇"
    assert cleaned(None) is None


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_tables_and_progress_keep_their_own_colours(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    for variable in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, name, cleaned(terminal))
    console = {"stdout": stdout, "stderr": stderr}[name]()
    table = new_table("name")
    table.add_row("odd \x1b[31m name")
    console.print(table)
    with Live(Text("at work", style="bold"), console=console, auto_refresh=False):
        print("beside \x07 it", file=getattr(sys, name))
        {"stdout": stdout, "stderr": stderr}[name]().print("of another \x1b[5m console")
    said = terminal.getvalue()
    assert "odd ␛[31m nam" in said, "rich takes an escape for no column wide"
    assert "\x1b[31m" not in said
    assert "\x1b[5m" not in said
    assert "\x07" not in said
    assert "\x1b[1mat work\x1b[0m" in said
    assert "\x1b[?25l" in said, "the cursor is hidden meanwhile"
