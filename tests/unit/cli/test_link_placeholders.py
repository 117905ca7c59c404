"""Placeholders in a command, and all the braces that are none."""

from __future__ import annotations

import pytest

from bwbench.cli.link.placeholders import fill_in

ADDRESSES = ["10.77.0.1", "10.77.0.2", "10.77.0.3"]


def filled(word: str, rank: int = 1) -> str:
    return fill_in([word], rank, ADDRESSES)[0]


@pytest.mark.parametrize(
    "word, expected",
    [
        ("{rank}", "1"),
        ("{nodes}", "3"),
        ("{address}", "10.77.0.2"),
        ("{address:0}", "10.77.0.1"),
        ("http://{address:2}:80{rank}/x", "http://10.77.0.3:801/x"),
        ("{{rank}}", "{rank}"),
        ("{{address:0}}", "{address:0}"),
        ("{{{rank}}}", "{{rank}}"),
        ("{{rnk}}", "{rnk}"),
    ],
)
def test_placeholders(word: str, expected: str) -> None:
    assert filled(word) == expected


@pytest.mark.parametrize(
    "word",
    [
        '{"a": 1}', '{"a": {"b": {}}}', "{'rank': 1}", "{}", "{ rank }", "{1..3}", "{a,b}", "{print $1}", "${HOME}",
        "${rank}", "x{0}", "{print}", "{next}", "/x/ {exit}", "NR==1{print}", "{n:1}", "{file}", "{{x}}", "{{name}}",
        "[0-9]{3}", "{{.Names}}", "{{ x }}", "}}{{", "{", "}", "{:2}", "{é}", "{rank", "rank}",
        '{"x":{"y":"{z"}}',
    ],
)  # fmt: skip
def test_other_braces_stay_as_they_are(word: str) -> None:
    assert filled(word) == word


@pytest.mark.parametrize(
    "word, words",
    [
        ("{rnk}", "'rank'"),
        ("{rnk}", "{{rnk}}"),
        ("{addr:1}", "{address:K}"),
        ("{address:3}", "0 to 2"),
        ("{address:-1}", "0 to 2"),
        ("{address:x}", "no node 'x'"),
        ("{address:}", "0 to 2"),
        ("{rank:1}", "nothing behind a colon"),
        ("{RANK}", "{rank}"),
    ],
)
def test_what_is_none_of_them_is_refused(word: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        filled(word)
    assert words in str(caught.value)
