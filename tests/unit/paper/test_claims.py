"""Claims follow their records, and fail with a message that says what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fixtures_paper import CLAIMS, ROOT, write_records

from bwbench.base.errors import ConfigError
from bwbench.records import CellFolder
from bwbench.results.text import plain
from paper.program.claim import Claim, Value, load_claims
from paper.program.claim_words import full_text, judge
from paper.program.claimed_cells import AmbiguousClaimError, MissingRecordsError, Records, matches
from paper.program.evaluate import evaluate
from paper.program.evidence import Row, row_texts
from paper.program.spoken import spoken_text, spoken_with_interval


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return Records(write_records(tmp_path_factory.mktemp("results")))


def _claim(**fields: Any) -> Claim:
    where: Mapping[str, Any] = fields.pop("where", {"link.bandwidth": "10 Mbit/s"})
    return Claim(name="x", experiment="study", where=where, **fields)


def test_a_ratio_is_that_of_compare(records: Records) -> None:
    value = evaluate(_claim(kind="ratio", arm="ring-fp16", over="ddp"), records)
    assert value.side == 1 and value.num == 3
    assert value.low is not None and value.high is not None and value.value is not None
    assert 1 < value.low <= value.value <= value.high
    inverse = evaluate(_claim(kind="ratio", arm="ddp", over="ring-fp16"), records)
    assert inverse.side == -1 and inverse.value == pytest.approx(1 / value.value)


def test_a_quantity_may_be_spelt_otherwise(records: Records) -> None:
    one, other = (
        evaluate(_claim(kind="value", arm="ddp", where={"link.bandwidth": text}), records)
        for text in ("10 Mbit/s", "10000 kbit/s")
    )
    assert one == other


def test_a_ratio_of_two_settings_of_one_arm(records: Records) -> None:
    claim = _claim(kind="ratio", arm="ddp", over_where={"link.bandwidth": "100 Mbit/s"})
    value = evaluate(claim, records)
    assert value.side == -1  # ten times less bandwidth is no faster


def test_a_link_that_follows_a_recording_is_told_from_a_steady_one(records: Records) -> None:
    steady = next(folder for folder in records.folders if folder.cell.arm == "ddp")
    trace = {direction: {"file": "office.txt", "sha256": "0" * 64, "mean": "10 Mbit/s"} for direction in ("up", "down")}
    config = {**steady.cell.config, "link": {**steady.cell.config["link"], "trace": trace}}
    recorded = cast(CellFolder, SimpleNamespace(cell=steady.cell.model_copy(update={"config": config})))
    for wanted in ("none", "some"):
        assert matches(steady, {"link.trace": wanted}) == (wanted == "none")
        assert matches(recorded, {"link.trace": wanted}) == (wanted == "some")


@pytest.mark.parametrize(
    ("fields", "unit"),
    [
        ({"kind": "difference", "arm": "threshold", "over": "ddp"}, "points"),
        ({"kind": "value", "arm": "ddp"}, "s"),
        ({"kind": "value", "arm": "ddp", "of": "wire bytes"}, "bytes"),
        ({"kind": "value", "arm": "ddp", "of": "wire bytes per step"}, "bytes"),
        ({"kind": "value", "arm": "ddp", "of": "samples"}, "samples"),
        ({"kind": "value", "arm": "ddp", "of": "final"}, "share"),
        ({"kind": "fastest"}, "ratio"),
        ({"kind": "ratio", "arm": "ring-fp16", "over": "ddp", "of": "wire bytes"}, "ratio"),
        ({"kind": "machine hours"}, "h"),
        ({"kind": "link error", "part": "most"}, "share"),
        ({"kind": "cells"}, "number"),
        ({"kind": "config", "key": "nodes"}, "words"),
    ],
)
def test_every_kind_has_a_value_and_words(records: Records, fields: dict[str, Any], unit: str) -> None:
    claim = _claim(**fields)
    value = evaluate(claim, records)
    assert value.unit == unit and value.num >= 1
    assert f"n = {value.num}" in plain(full_text(claim, value))


def test_a_crossover_is_found_or_said_to_lie_outside(records: Records) -> None:
    claim = _claim(kind="crossover", arm="threshold", over="ddp", where={})
    value = evaluate(claim, records)
    assert value.unit in ("bit/s", "words")
    assert "ddp" in plain(spoken_text(claim, value))


def test_missing_records_name_the_experiment_and_the_command(records: Records) -> None:
    for claim in (
        _claim(kind="value", arm="top-k"),
        _claim(kind="value", arm="ddp", where={"link.bandwidth": "3 Mbit/s"}),
        Claim(name="x", kind="cells", experiment="latency"),
    ):
        with pytest.raises(MissingRecordsError, match=r"claim 'x': experiment \w+.*make paper-results"):
            evaluate(claim, records)


def test_settings_that_are_left_open_are_named(records: Records) -> None:
    with pytest.raises(AmbiguousClaimError, match=r"where:.*link\.bandwidth: 10 Mbit/s, 100 Mbit/s"):
        evaluate(_claim(kind="value", arm="ddp", where={}), records)


UP = Value("ratio", 2.0, 3, 1.5, 2.5, side=1)
DOWN = Value("ratio", 0.5, 3, 0.4, 0.6, side=-1)
OPEN = Value("ratio", 1.1, 3, 0.9, 1.4, side=0)


@pytest.mark.parametrize(
    ("expect", "distinguishable", "value", "message"),
    [
        ("above 1", True, UP, None),
        ("above 1", True, DOWN, "its direction has changed .* declare `expect: below 1`"),
        ("above 1", True, OPEN, "the interval does not support .* `distinguishable: false`"),
        ("below 1", True, DOWN, None),
        ("below 1", True, UP, "declare `expect: above 1`"),
        ("none", True, DOWN, None),
        ("none", False, OPEN, None),
        ("none", False, UP, "can be told from no difference"),
    ],
)
def test_a_number_has_to_support_its_claim(
    expect: Any, distinguishable: bool, value: Value, message: str | None
) -> None:
    claim = _claim(kind="ratio", arm="a", over="b", expect=expect, distinguishable=distinguishable)
    found = judge(claim, value)
    if message is None:
        assert found is None
    else:
        assert found is not None
        assert re.search(message, found) and "a over b" in found


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (UP, "is 2.00 times as fast as b"),
        (DOWN, "takes 2.00 times as long as b"),
        (OPEN, "cannot be told from b in time to target"),
        (Value("ratio", 1.01, 12, 0.95, 1.08), "is as fast as b to within 10 %"),
        (Value("ratio", 1.01, 12, 0.90, 1.08), "cannot be told from b in time to target"),
        (
            Value("ratio", 1.1, 1),
            "may differ from b by chance (one repeat says nothing about chance) in time to target",
        ),
        (Value("ratio", 2.0, 3, bound=">", side=1), "is at least 2.00 times as fast as b"),
        (Value("ratio", 0.5, 3, bound="<", side=-1), "takes at least 2.00 times as long as b"),
        (Value("ratio", 1.1, 5, 1.01, 1.2, side=1), "is 1.10 times as fast as b, if only just"),
        (Value("ratio", 0.9, 5, 0.8, 0.99, side=-1), "takes 1.11 times as long as b, if only just"),
        (Value("ratio", 8.0, 5, bound="<"), "cannot be set beside b, since too few of its repeats arrive in time"),
        (Value("ratio", 0.2, 5, bound=">"), "cannot be set beside b, too few of whose repeats arrive in time"),
    ],
)
def test_a_verdict_says_what_the_interval_supports(value: Value, words: str) -> None:
    assert plain(spoken_text(_claim(kind="ratio", arm="a", over="b"), value)) == words


@pytest.mark.parametrize(
    ("of", "value", "words"),
    [
        ("samples", UP, "needs fewer samples than b, by a factor of 2.00"),
        ("samples", DOWN, "needs 2.00 times the samples of b"),
        ("wire bytes per step", OPEN, "cannot be told from b in the bytes in a step it needs"),
        ("samples a second", DOWN, "makes 0.500 times as many samples a second as b"),
        ("step time", DOWN, "needs 2.00 times as long for a step as b"),
    ],
)
def test_other_quantities_in_words(of: Any, value: Value, words: str) -> None:
    assert plain(spoken_text(_claim(kind="ratio", arm="a", over="b", of=of), value)) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Value("points", -0.0273, 5, -0.03, -0.02, side=-1), "ends 2.73 percentage points lower than b"),
        (Value("number", 0.5, 5, 0.4, 0.6, side=1), "ends higher than b, by 0.500"),
        (
            Value("points", 0.01, 5, -0.01, 0.03),
            "cannot be told from b in its final metric (−1.00 to 3.00 percentage points)",
        ),
        (
            Value("points", 0.01, 1),
            "may differ from b by chance (one repeat says nothing about chance) in its final metric",
        ),
    ],
)
def test_a_difference_in_words(value: Value, words: str) -> None:
    assert plain(spoken_text(_claim(kind="difference", arm="a", over="b"), value)) == words


def test_the_evidence_has_what_the_sentence_leaves_out() -> None:
    claim = _claim(kind="ratio", arm="a", over="b", over_where={"nodes": 8})
    down = Value("ratio", 0.5, 3, 0.4, 0.6, side=-1, composed=True, num_censored=1)
    row = [plain(text) for text in row_texts(Row(1, claim, down, host_bound=True))]
    assert row == ["time of a over that of b; 10 Mbit/s, against nodes 8; 1 not reached", "2.00", "1.67 to 2.50", "3",
                   "†⊙", "study"]  # fmt: skip
    row = [plain(text) for text in row_texts(Row(1, claim, OPEN))]
    assert row[:3] == ["time of b over that of a; 10 Mbit/s, against nodes 8", "1.10", "0.900 to 1.40"]


UNTOLD = "and cannot be told from it"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Value("bit/s", 20e6, 3, 15e6, 30e6, side=1), "crosses b at 20 Mbit/s (15 to 30 Mbit/s), and is faster below"),
        (Value("bit/s", 20e6, 3, 15e6, 30e6, side=-1), "crosses b at 20 Mbit/s (15 to 30 Mbit/s), and is faster above"),
        (Value("bit/s", 20e6, 3, 15e6, None, side=-1), f"is slower than b below 15 Mbit/s, {UNTOLD} above"),
        (Value("bit/s", 20e6, 3, None, 30e6, side=-1), f"is faster than b above 30 Mbit/s, {UNTOLD} below"),
        (Value("bit/s", 400e6, 3, 286e6, None, side=1), f"is faster than b below 280 Mbit/s, {UNTOLD} above"),
        (Value("bit/s", 400e6, 3, None, 431e6, side=-1), f"is faster than b above 440 Mbit/s, {UNTOLD} below"),
        (
            Value("bit/s", 24e6, 3, 21.8e6, 27.2e6, side=-1),
            "crosses b at 24 Mbit/s (21 to 28 Mbit/s), and is faster above",  # ends are rounded outwards
        ),
        (Value("scale", 2.0, 3, 1.5, None, side=1), f"is slower than b where S/(B·T) is below 1.5, {UNTOLD} above"),
        (Value("scale", 2.0, 3, None, 3.0, side=1), f"is faster than b where S/(B·T) is above 3.0, {UNTOLD} below"),
        (
            Value("words", None, 3, words="8 of 8 bandwidths are host-bound"),
            "has no crossover with b that is given, since its cells are host-bound",
        ),
        (Value("words", None, 3, words="no trend"), "has no crossover with b that can be told"),
        (Value("bit/s", 20e6, 3, 10e6, 30e6, side=1), "crosses b somewhere from 10 to 30 Mbit/s, and is faster below"),
        (
            Value("scale", 2.0, 3, 1.5, 3.0, side=1),
            "crosses b where S/(B·T) is 2.0 (1.5 to 3.0), and is faster where it is larger",
        ),
        (
            Value("bit/s", None, 3, 90e6, None, side=1, words="above all measured"),
            f"is faster than b below 90 Mbit/s, {UNTOLD} above",
        ),
        (
            Value("bit/s", None, 3, None, 2e6, side=1, words="below all measured"),
            f"is slower than b above 2 Mbit/s, {UNTOLD} below",
        ),
        (
            Value("bit/s", None, 3, 90e6, None, side=1, words="above all measured", all_told=True),
            "is faster than b on all measured links",
        ),
        (Value("bit/s", None, 1, words="above all measured"), "crosses b outside of what was measured, if at all"),
    ],
)
def test_a_crossover_in_words(value: Value, words: str) -> None:
    assert plain(spoken_text(_claim(kind="crossover", arm="a", over="b"), value)) == words


def test_a_sentence_with_its_interval_says_one_number_and_its_ends() -> None:
    ratio, crossover = (_claim(kind=kind, arm="a", over="b") for kind in ("ratio", "crossover"))
    down, untold = Value("ratio", 0.5, 3, 0.4, 0.625, side=-1), Value("ratio", 1.2, 3, 0.8, 1.5, side=0)
    assert plain(spoken_with_interval(ratio, down)) == "takes 2.00 times as long as b (1.60 to 2.50)"
    assert plain(spoken_with_interval(ratio, untold)) == "cannot be told from b in time to target (0.800 to 1.50)"
    found = Value("bit/s", 20e6, 3, 15e6, 30e6, side=1)
    assert plain(spoken_with_interval(crossover, found)) == plain(spoken_text(crossover, found))


def test_all_that_is_wrong_in_a_file_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(
        "study:\n"
        "  Bad: {kind: cells}\n"
        "  a: {kind: ratio, arm: x}\n"
        "  b: {kind: value, arm: x, expect: above 1}\n"
        "  c: {kind: ratio, arm: x, over: y, expect: above 1, distinguishable: false}\n"
        "  d: {kind: nonsense}\n"
    )
    with pytest.raises(ConfigError) as error:
        load_claims(path)
    assert len(error.value.problems) == 5


def test_the_claims_of_the_paper_are_well_formed() -> None:
    claims = load_claims(ROOT / "paper/claims.yaml")
    planned = {path.stem for path in (ROOT / "experiments").rglob("*.yaml")}
    assert {claim.experiment for claim in claims.values() if claim.kind != "given"} <= planned | {"all"}


def test_defaults_of_a_group_reach_its_claims(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(CLAIMS)
    claims = load_claims(path)
    assert claims["fp16"].over == "ddp" and claims["fp16"].where == {"link.bandwidth": "10 Mbit/s"}
    assert claims["confidence"].kind == "given"
