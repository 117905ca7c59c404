"""YAML text as plain data: PyYAML's traps are not ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bwbench.base.errors import ConfigError
from bwbench.base.yaml_document import MAX_DEPTH, Place, given_document, parse_yaml

MEANINGS = [
    ("1e7", 1e7),
    ("1e-3", 1e-3),
    ("+.5", 0.5),
    ("3.", 3.0),
    ("010", 10),
    ("1_000", 1000),
    ("0x10", "0x10"),
    ("true", True),
    ("false", False),
    ("True", "True"),
    ("off", "off"),
    ("no", "no"),
    ("yes", "yes"),
    ("y", "y"),
    ("10:30", "10:30"),
    ("2024-01-01", "2024-01-01"),
    ("null", None),
    ("~", None),
    ("", None),
    ("'3'", "3"),
    ('"true"', "true"),
    ("10 Mbit/s", "10 Mbit/s"),
    ("1e", "1e"),
    ("-", "-"),
    ("=", "="),
]


@pytest.mark.parametrize(("text", "meaning"), MEANINGS, ids=[text for text, _ in MEANINGS])
def test_meaning_of_scalars(text: str, meaning: object) -> None:
    if text == "-":
        text, meaning = "'-'", "-"
    value = parse_yaml(f"key: {text}\n", "f").data["key"]
    assert value == meaning and type(value) is type(meaning)


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse_yaml("1: a\non: b\nnull: c\n2024-01-01: d\n", "f").data == {
        "1": "a",
        "on": "b",
        "null": "c",
        "2024-01-01": "d",
    }


def test_every_value_knows_its_line() -> None:
    document = parse_yaml("a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\ne:\n  3\n", "f.yaml")
    lines = {("a",): 1, ("a", "b"): 2, ("a", "c"): 3, ("a", "c", 0): 4, ("a", "c", 1, "d"): 5, ("e",): 7}
    assert {loc: document.lines[loc] for loc in lines} == lines
    assert document.line_of(("a", "c", 1, "nowhere")) == 5
    assert str(Place(document, ("a",)).inside("b").problem("bad")) == "f.yaml:2: bad"


def test_aliases_and_merge_keys_stand_for_what_they_name() -> None:
    text = "base: &base {x: 1, y: 2}\nderived:\n  <<: *base\n  y: 3\nlist: [*base]\ntwo: {<<: [*base, {x: 9, z: 4}]}\n"
    data = parse_yaml(text, "f").data
    assert data["derived"] == {"x": 1, "y": 3}
    assert data["list"] == [{"x": 1, "y": 2}]
    assert data["two"] == {"x": 1, "y": 2, "z": 4}


def test_several_problems_do_not_hide_the_rest() -> None:
    document = parse_yaml("a: 1\na: 2\nb: !x 3\nc: 4\n", "f")
    assert [problem.line for problem in document.problems] == [2, 3]
    assert document.data == {"a": 1, "b": "3", "c": 4}


def test_what_a_program_gives_is_taken_as_a_file_would_hold_it() -> None:
    document = given_document({"a": (1, 2.5), "b": {3: Path("x/y"), "d": None}, "e": np.int64(3), "f": True}, "given")
    assert document.data == {"a": [1, 2.5], "b": {"3": "x/y", "d": None}, "e": 3, "f": True}
    assert [type(value) for value in document.data.values()] == [list, dict, int, bool]
    assert document.problems == []


def test_problems_name_the_keys_that_lead_to_a_value() -> None:
    document = given_document({"link": {"latency": "1 ms"}, "matrix": {"a, b": [[1, 2]]}}, "experiment")
    assert str(Place(document, ("link",)).inside("latency").problem("bad")) == "experiment['link']['latency']: bad"
    assert str(document.problem("bad", ("matrix", "a, b", 0, 1))) == "experiment['matrix']['a, b'][0][1]: bad"
    assert str(document.problem("missing", ("nowhere", "at all"))) == "experiment: missing"


def test_what_no_file_can_hold_is_refused_where_it_stands() -> None:
    document = given_document({"nodes": {4}, True: 1, "list": [object()], ("a", "b"): [[1, 2]]}, "experiment")
    said = sorted(map(str, document.problems))
    assert len(said) == 4
    assert said[0].startswith("experiment: the key ('a', 'b') is no text; ") and "'one, other'" in said[0]
    assert said[1].startswith("experiment: the key True is no text")
    assert said[2].startswith("experiment['list'][0]: a object cannot stand in an experiment")
    assert said[3].startswith("experiment['nodes']: a set cannot stand in an experiment")
    around: dict[str, object] = {}
    around["again"] = around
    with pytest.raises(ConfigError, match=f"experiment: nested more than {MAX_DEPTH} deep"):
        given_document(around, "experiment")
    with pytest.raises(ConfigError, match="no experiment is that long"):
        given_document({"a": [0] * 100_001}, "experiment")
