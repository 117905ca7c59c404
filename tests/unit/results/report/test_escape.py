"""Names from YAML are text, whatever they hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bwbench.results.text import (
    LatexWriter,
    MarkdownWriter,
    Number,
    fixed,
    latex,
    macro_name,
    markdown,
    phrase,
    significant,
    span,
)


@pytest.mark.parametrize(
    ("text", "in_latex", "in_markdown"),
    [
        ("a_b", r"a\_b", r"a\_b"),
        ("<script>", r"\textless{}script\textgreater{}", r"\<script\>"),
        ("50%", r"50\%", "50%"),
        ("a|b", r"a\textbar{}b", r"a\|b"),
        ("$x$", r"\$x\$", r"\$x\$"),
        ("\\input", r"\textbackslash{}input", r"\\input"),
        ("a\nb", "a b", "a b"),
        ("a--b", "a-{}-b", r"a-\-b"),
        ("1. x", "1. x", r"1\. x"),
        ("\N{GRINNING FACE}", "U+1F600", "\N{GRINNING FACE}"),
    ],
)
def test_text_stands_for_itself(text: str, in_latex: str, in_markdown: str) -> None:
    assert latex(text) == in_latex
    assert markdown(text) == in_markdown


@given(st.text())
def test_no_bare_special_character_is_left(text: str) -> None:
    assert "\n" not in latex(text) + markdown(text)
    bare = latex(text)
    for escaped in (r"\{", r"\}", r"\$", r"\&", r"\%", r"\#", r"\_"):
        bare = bare.replace(escaped, "")
    assert not set(bare) & set("$&%#_^")


def test_a_number_is_a_macro_in_latex_and_itself_in_markdown() -> None:
    text = phrase("takes ", Number("time ring-fp16", "3.4 s"), ".")
    writer = LatexWriter()
    assert writer.write(text) == r"takes \bwTimeRingFpOneSix{}."
    assert writer.macros == [r"\newcommand{\bwTimeRingFpOneSix}{3.4~s}"]
    assert MarkdownWriter().write(text) == "takes 3.4 s."


def test_one_name_never_stands_for_two_numbers() -> None:
    writer = LatexWriter()
    uses = [writer.write((Number("a-b", text),)) for text in ("1", "2", "1")]
    assert uses == [r"\bwAB{}", r"\bwABVTwo{}", r"\bwAB{}"]
    assert len(writer.macros) == 2


def test_macro_names_are_letters() -> None:
    assert macro_name("10 Mbit/s <b>") == "bwOneZeroMbitSB"


def test_rounding_never_crosses_the_line_a_number_is_judged_by() -> None:
    assert significant(1.0004) == "1.00"
    assert significant(1.0004, apart_from=1.0) == "1.0004"
    assert significant(0.99996, apart_from=1.0) == "0.99996"
    assert fixed(-0.001, 2, apart_from=0.0) == "−0.001"
    assert fixed(-0.001, 2) == "0.00"
    assert [significant(value) for value in (9.996, 1234.5, 0.01234)] == ["10.0", "1234", "0.0123"]


def test_a_unit_of_both_ends_is_said_once() -> None:
    assert span("1.2 s", "1.4 s") == "1.2 to 1.4 s"
    assert span("50 s", "1.2 min") == "50 s to 1.2 min"
