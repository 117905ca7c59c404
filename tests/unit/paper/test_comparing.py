"""Claims that compare arms say what `bwbench compare` says, and name all arms that may be the fastest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fixtures_paper import write_records

from bwbench.results.analysis.cell_arrival import at_target
from bwbench.results.analysis.comparison import compare_cells
from bwbench.results.text import plain
from paper.program.claim import Claim, Value
from paper.program.claim_words import full_text
from paper.program.claimed_cells import MissingRecordsError, Records
from paper.program.evaluate import evaluate
from paper.program.evidence import Row, row_texts
from paper.program.spoken import spoken_text

TEN = {"link.bandwidth": "10 Mbit/s"}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return Records(write_records(tmp_path_factory.mktemp("results")))


def _claim(**fields: Any) -> Claim:
    return Claim(**{"name": "x", "experiment": "study", "where": TEN, **fields})


def test_a_ratio_and_its_parts_are_those_of_compare(records: Records) -> None:
    rows = compare_cells(records.folders, "ddp").rows
    row = next(row for row in rows if row.algorithm == "ring-fp16" and row.condition == TEN)
    assert row.ratio is not None and row.taken_apart is not None
    for of, ratio in (("time", row.ratio), ("step time", row.taken_apart.step), ("samples", row.taken_apart.samples)):
        value = evaluate(_claim(kind="ratio", arm="ring-fp16", over="ddp", of=of), records)
        assert (value.value, value.low, value.high, value.num) == (ratio.value, ratio.low, ratio.high, ratio.num)


def test_the_fastest_are_the_best_set(records: Records) -> None:
    found = next(row.best for row in compare_cells(records.folders, "ddp").best if row.condition == TEN)
    value = evaluate(_claim(kind="fastest"), records)
    first, *others = value.words.split("|")
    assert first == found.first
    assert others == list(found.members[1:] or list(found.times)[1:2])
    assert value.side == (len(found.members) == 1)


def test_at_another_target_claims_and_compare_say_the_same(records: Records) -> None:
    lower = 0.70
    compared = compare_cells(at_target(records.folders, ("accuracy", lower)), "ddp")
    best = next(row.best for row in compared.best if row.condition == TEN)
    value = evaluate(_claim(kind="fastest", target=lower), records)
    assert best.first is not None and value.words.split("|")[0] == best.first
    assert value.beside == list(best.times)[1] and "to 0.7" in plain(
        row_texts(Row(1, _claim(kind="fastest", target=lower), value))[0]
    )
    assert value.value == pytest.approx(best.behind[value.beside].value)
    assert value.value != evaluate(_claim(kind="fastest"), records).value
    (crossover,) = [one for one in compared.crossovers if one.algorithm == "ring-fp16"]
    claim = _claim(kind="crossover", arm="ring-fp16", over="ddp", where={}, target=lower)
    assert evaluate(claim, records).num == crossover.crossovers.num


def test_bytes_of_a_step_have_an_interval_of_no_width_where_they_never_differ(records: Records) -> None:
    value = evaluate(_claim(kind="ratio", arm="ring-fp16", over="ddp", of="wire bytes per step"), records)
    inverse = evaluate(_claim(kind="ratio", arm="ddp", over="ring-fp16", of="wire bytes per step"), records)
    assert value.value is not None and inverse.value == pytest.approx(1 / value.value)
    assert value.low is not None and value.high is not None and value.low <= value.value <= value.high


def test_a_difference_turns_its_sign_with_its_arms(records: Records) -> None:
    one = evaluate(_claim(kind="difference", arm="threshold", over="ddp"), records)
    other = evaluate(_claim(kind="difference", arm="ddp", over="threshold"), records)
    assert one.value is not None and one.low is not None and one.high is not None
    assert (other.value, other.low, other.high) == pytest.approx((-one.value, -one.high, -one.low))


def test_host_bound_cells_stand_in_no_crossover(records: Records) -> None:
    claim = _claim(kind="crossover", arm="threshold", over="ddp", where={})
    bound = Records(records.root)
    vars(bound)["own_steps"] = SimpleNamespace(row=lambda folder: {"host_bound": True})
    value = evaluate(claim, bound)
    assert value.unit == "words" and value.words == "2 of 2 bandwidths are host-bound" and value.side == 0
    assert plain(spoken_text(claim, value)) == "has no crossover with ddp that can be told"
    assert "2 of 2 bandwidths are host-bound" in plain(row_texts(Row(1, claim, value))[0])


def test_a_first_crossing_is_said_and_another_target_is_unknown_where_runs_ended(records: Records) -> None:
    value = evaluate(_claim(kind="ratio", arm="ring-fp16", over="ddp"), records)
    assert "first crossings)" in plain(full_text(_claim(kind="ratio", arm="ring-fp16", over="ddp"), value))
    with pytest.raises(MissingRecordsError, match="too few repeats of both sides"):
        evaluate(_claim(kind="ratio", arm="ring-fp16", over="ddp", target=0.999), records)


@pytest.mark.parametrize(
    ("words", "side", "said"),
    [
        ("a|b", 1, "a is faster than every other arm, 2.00 times as fast as b"),
        ("a|b", 0, "a has the shortest mean time, and cannot be told from b"),
        ("a|b|c|d", 0, "a has the shortest mean time, and cannot be told from b, c and d"),
        ("a|b|c|d|e|f", 0, "a has the shortest mean time, and cannot be told from five other arms"),
    ],
)
def test_the_fastest_in_words(words: str, side: int, said: str) -> None:
    value = Value("ratio", 2.0, 3, 1.5, 2.5, side=side, words=words)
    assert plain(spoken_text(_claim(kind="fastest"), value)) == said
    assert all(arm in plain(row_texts(Row(1, _claim(kind="fastest"), value))[0]) for arm in words.split("|"))
    if side == 0:
        single = Value("ratio", 2.0, 1, words=words)
        assert "but one repeat says nothing about chance" in plain(spoken_text(_claim(kind="fastest"), single))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Value("ratio", 2.0, 3, 1.5, 2.5, side=1), "makes steps 2.00 times as fast as b"),
        (Value("ratio", 2.0, 3, 1.5, 2.5), "cannot be told from b in the time of a step"),
    ],
)
def test_step_times_in_words(value: Value, said: str) -> None:
    assert plain(spoken_text(_claim(kind="ratio", arm="a", over="b", of="step time"), value)) == said
