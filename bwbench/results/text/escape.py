"""Any text as itself in LaTeX and in Markdown, whatever characters a YAML file brought along."""

from __future__ import annotations

import re
import unicodedata

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "×": r"\ensuremath{\times}",
    "·": r"\ensuremath{\cdot}",
    "±": r"\ensuremath{\pm}",
    "−": r"\ensuremath{-}",
    "→": r"\ensuremath{\rightarrow}",
    "≤": r"\ensuremath{\leq}",
    "≥": r"\ensuremath{\geq}",
    "≈": r"\ensuremath{\approx}",
    "∞": r"\ensuremath{\infty}",
    "†": r"\textdagger{}",
    "µ": r"\ensuremath{\mu}",
    "μ": r"\ensuremath{\mu}",
    "²": r"\textsuperscript{2}",
    "\N{NO-BREAK SPACE}": "~",
}
_LAST_OF_T1 = 0xFF  # what inputenc and the T1 encoding have without further packages
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|$~^&@]")


def latex(text: str) -> str:
    """``text`` for the body of a LaTeX document with T1 fonts. A character that no such font has is named instead."""
    text = _one_line(text)
    following = [*text[1:], ""]
    return "".join(_latex_character(one, after) for one, after in zip(text, following, strict=True)) if text else ""


def markdown(text: str) -> str:
    """``text`` for running text and table cells of Markdown: GitHub's, pandoc's and CommonMark."""
    escaped = _MARKDOWN.sub(lambda match: "\\" + match[0], _one_line(text))
    escaped = escaped.replace("--", r"-\-").replace("://", r"\://")  # no dash, no link of its own
    return re.sub(r"^(\d+)([.)])(?=\s)", r"\1\\\2", re.sub(r"^([+-])(?=\s)", r"\\\1", escaped))


def _one_line(text: str) -> str:
    text = unicodedata.normalize("NFC", text)
    text = re.sub(r"[\t\r\n\v\f\x85\u2028\u2029]+", " ", text)
    return "".join(character for character in text if unicodedata.category(character) not in ("Cc", "Cf", "Cs"))


def _latex_character(character: str, after: str) -> str:
    if character in _LATEX:
        return _LATEX[character]
    if character == "-" and after == "-":
        return "-{}"  # two of them are two, not a dash
    return character if ord(character) <= _LAST_OF_T1 else f"U+{ord(character):04X}"
