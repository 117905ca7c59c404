"""What is printed, without what would command a terminal: names, reasons and logs in records are anybody's text."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import Any, TextIO, cast

# Control characters but for tab and newline; marks that turn the direction of text around; halves of characters.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PICTURES = 0x2400  # U+241B is a picture of escape, U+001B; one column wide each, so that tables stay straight
_OTHER = "\ufffd"


def clean(text: str) -> str:
    """``text`` with a picture, as long as it, in the place of every character that is no text."""
    return _COMMANDS.sub(_picture, text)


def one_line(text: str) -> str:
    """``text`` cleaned, tabs and newlines too."""
    return clean(text).replace("\n", "\u240a").replace("\t", "\u2409")


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(_PICTURES + code)
    return "\u2421" if code == 0x7F else _OTHER


class CleanStream:
    """A stream through which texts are printed cleaned. All else is the stream's own affair."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def rich_proxied_file(self) -> TextIO:
        """Where rich writes, which has commands of its own; ``CleanConsole`` cleans the texts between them."""
        return self._stream

    def write(self, text: str) -> int:
        """Print ``text``."""
        self._stream.write(clean(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Print one after another."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def uncleaned(stream: TextIO) -> TextIO:
    """The stream itself, for ``CleanConsole``: also where rich has put a proxy of its own before a cleaned one."""
    while (inner := getattr(stream, "rich_proxied_file", stream)) is not stream:
        stream = inner
    return stream


def cleaned(stream: TextIO | None) -> TextIO | None:
    """A standard stream that prints UTF-8 whatever the locale is, and no commands; None where it is closed."""
    if stream is None:
        return None
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return cast(TextIO, CleanStream(stream))
