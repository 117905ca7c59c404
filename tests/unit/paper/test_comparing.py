"""Claims that compare arms say what `bwbench compare` says, and name all arms that may be the fastest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fixtures_paper import write_records

from bwbench.base.units import MEMORY
from bwbench.results.analysis.cell_arrival import at_target
from bwbench.results.analysis.comparison import compare_cells
from bwbench.results.analysis.crossover import Measured, scale_of
from bwbench.results.analysis.statistics import Arrival
from bwbench.results.text import phrase, plain, significant
from paper.program.arms import arms_table
from paper.program.claim import Claim, Value
from paper.program.claim_words import ends_text, full_text
from paper.program.claimed_cells import MissingRecordsError, Records, matches
from paper.program.comparing import _are_told_alike, _by_inverse, _shift, quantities
from paper.program.decision import Decision, _gain, _wrapped, decision_table
from paper.program.evaluate import evaluate
from paper.program.evidence import Row, row_texts
from paper.program.ratios import ratios_table
from paper.program.spoken import spoken_text, with_names
from paper.program.studies import studies_table

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


FAR = 2.0**2**0.5  # two ends of twice the value, together


@pytest.mark.parametrize(
    ("one", "other", "ends", "words"),
    [
        ((1.0, 4.0), (0.5, 2.0), (2.0 / FAR, 2.0 * FAR), "cannot be told from that of b (0.750 to 5.33 times)"),
        ((1.0, 4.0), (1.0, 1.0), (1.0, 4.0), "cannot be told from that of b (1.00 to 4.00 times)"),
        ((1.8, 2.2), (0.9, 1.1), (1.735, 2.305), "is 2.00 times that of b (1.74 to 2.31)"),
        ((1.0, 4.0), (None, 2.0), (2.0 / FAR, None), "cannot be told from that of b (above 0.750 times)"),
    ],
)
def test_a_crossover_beside_another_has_the_errors_of_both(one: Any, other: Any, ends: Any, words: str) -> None:
    found = _shift(Value("scale", 2.0, 4, *one), Value("scale", 1.0, 3, *other))
    assert (found.value, found.num) == (2.0, 3) and found.side == ("told" not in words)
    for end, expected in zip((found.low, found.high), ends, strict=True):
        assert end == (None if expected is None else pytest.approx(expected, rel=1e-3))
    assert plain(spoken_text(_claim(kind="shift", arm="a", over="one", than={"arm": "c"}, against="b"), found)) == words


def test_a_crossover_beside_one_that_is_not_known_says_so() -> None:
    found = _shift(Value("scale", 2.0, 4, 1.0, 4.0), Value("words", None, 3, words="below all measured"))
    claim = _claim(
        kind="shift", arm="a", over="one", than={"experiment": "else", "target": 0.6}, against="b", target=0.5
    )
    assert plain(spoken_text(claim, found)) == "cannot be set beside that of b"
    assert [one.experiment for one in claim.crossovers] == ["study", "else"]
    assert [one.target for one in claim.crossovers] == [0.5, 0.6]
    assert {one.part for one in claim.crossovers} == {"scale"}


def test_a_closed_form_knows_samples_nodes_and_bytes_alone(records: Records) -> None:
    claim = _claim(kind="closed form", arm="ring-fp16", over="single")
    found = evaluate(claim, records)
    samples = evaluate(_claim(kind="ratio", arm="ring-fp16", over="single", of="samples"), records)
    cells = [one for one in records.done("study") if one.cell.arm == "ring-fp16" and matches(one, TEN)]
    sent, size = quantities(cells, "wire bytes per step")[0], scale_of(cells).gradient_bytes
    nodes = cells[0].cell.config["nodes"]
    assert samples.value is not None and size is not None and found.unit == "scale"
    assert found.value == pytest.approx((nodes * samples.value - 1) / (sent / nodes / size))
    assert found.low is not None and found.high is not None and found.low < (found.value or 0.0) < found.high
    assert "by samples, nodes and bytes" in plain(row_texts(Row(1, claim, found))[0])


def test_a_crossover_by_the_inverse_of_the_bandwidth_is_that_of_an_affine_step() -> None:
    """Time of a step 1 s and 40 Mbit on the link, beside an arm that takes 3 s."""
    measured = [
        Measured(
            1e6 * mbps, *({seed: Arrival(time_s, None, 0.0) for seed in range(2)} for time_s in (3.0, 1 + 40 / mbps))
        )
        for mbps in (10, 40, 200)
    ]
    assert _by_inverse(measured) == pytest.approx(20e6)
    assert _by_inverse(measured[1:]) is None


def test_the_fastest_are_the_best_set(records: Records) -> None:
    found = next(row.best for row in compare_cells(records.folders, "ddp").best if row.condition == TEN)
    value = evaluate(_claim(kind="fastest"), records)
    first, *others = value.words.split("|")
    assert first == found.first
    assert others == list(found.members[1:] or list(found.times)[1:2])
    assert value.side == (len(found.members) == 1)


@pytest.mark.parametrize(("target", "all_of_them"), [(None, True), (0.70, True), (0.999, False)])
def test_arms_that_arrive_are_counted_at_the_target(records: Records, target: float | None, all_of_them: bool) -> None:
    racing, arrived = (
        evaluate(_claim(kind="cells", part=part, target=target), records).value for part in ("arms", "arrived")
    )
    assert racing and arrived == (racing if all_of_them else 0)
    (what, *_) = row_texts(Row(1, _claim(kind="cells", part="arrived", target=0.7), Value("number", 4.0, 4)))
    assert "to 0.7" in plain(what)


def test_at_another_target_claims_and_compare_say_the_same(tmp_path: Path) -> None:
    records, lower = Records(write_records(tmp_path, samples_scale=6000.0)), 0.70  # met behind the first evaluation
    compared = compare_cells(at_target(records.folders, ("accuracy", lower)), "ddp")
    best = next(row.best for row in compared.best if row.condition == TEN)
    value = evaluate(_claim(kind="fastest", target=lower), records)
    assert best.first is not None and value.words.split("|")[0] == best.first
    assert value.beside == list(best.times)[1] and "to 0.7" in plain(
        row_texts(Row(1, _claim(kind="fastest", target=lower), value))[0]
    )
    assert value.value == pytest.approx(best.behind[value.beside].value)
    assert value.value != evaluate(_claim(kind="fastest"), records).value
    claim = _claim(kind="crossover", arm="threshold", over="single", where={})
    own, asked = (evaluate(one, records) for one in (claim, claim.model_copy(update={"target": lower})))
    found = compare_cells(at_target(records.folders, ("accuracy", lower)), "single").crossovers
    (row,) = [one for one in found if one.algorithm == "threshold"]
    said = row.crossovers.found[0]
    assert (asked.value, asked.low, asked.high) == (said.bandwidth_bps, said.low_bps, said.high_bps)
    assert (asked.value, asked.low, asked.high) != (own.value, own.low, own.high)


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
    vars(bound)["own_steps"] = {"study": SimpleNamespace(row=lambda folder: {"host_bound": True})}
    value = evaluate(claim, bound)
    assert value.unit == "words" and value.words == "2 of 2 bandwidths are host-bound" and value.side == 0
    said = "has no crossover with ddp that is given, since its cells are host-bound"
    assert plain(spoken_text(claim, value)) == said
    assert "2 of 2 bandwidths are host-bound" in plain(row_texts(Row(1, claim, value))[0])


@pytest.mark.parametrize(("times", "told"), [((10.0, 20.0), True), ((10.0, 30.0), False), ((10.0, 50.0), False)])
def test_all_links_are_told_alike_where_each_tells_the_same_arm(times: tuple[float, ...], told: bool) -> None:
    reference = {seed: Arrival(30.0 * noise, None, 0.0) for seed, noise in enumerate((0.98, 1.0, 1.02))}
    arms = [
        {seed: Arrival(time_s * one.middle_s / 30.0, None, 0.0) for seed, one in reference.items()} for time_s in times
    ]
    assert _are_told_alike([Measured(1e6 * place, reference, arm) for place, arm in enumerate(arms, 1)]) is told


def test_a_first_crossing_is_said_and_another_target_is_unknown_where_runs_ended(records: Records) -> None:
    value = evaluate(_claim(kind="ratio", arm="ring-fp16", over="ddp"), records)
    assert "first crossings)" in plain(full_text(_claim(kind="ratio", arm="ring-fp16", over="ddp"), value))
    with pytest.raises(MissingRecordsError, match="too few repeats of both sides"):
        evaluate(_claim(kind="ratio", arm="ring-fp16", over="ddp", target=0.999), records)


@pytest.mark.parametrize(
    ("words", "side", "said"),
    [
        ("a|b", 1, "a is faster than every other arm, 2.00 times as fast as b"),
        ("a|b", 0, "a has the shortest mean time, and b may be as fast"),
        ("a|b|c|d", 0, "a has the shortest mean time, and b, c and d may be as fast"),
        ("a|b|c|d|e|f", 0, "a has the shortest mean time, and five other arms may be as fast"),
    ],
)
def test_the_fastest_in_words(words: str, side: int, said: str) -> None:
    value = Value("ratio", 2.0, 3, 1.5, 2.5, side=side, words=words)
    assert plain(spoken_text(_claim(kind="fastest"), value)) == said
    assert all(arm in plain(row_texts(Row(1, _claim(kind="fastest"), value))[0]) for arm in words.split("|"))
    if side == 0:
        single = Value("ratio", 2.0, 1, words=words)
        assert "but one repeat says nothing about chance" in plain(spoken_text(_claim(kind="fastest"), single))


def test_sentences_call_arms_by_their_names() -> None:
    value, names = Value("ratio", 2.0, 3, 1.5, 2.5, words="a|b|c"), {"a": "the first", "b": "B"}
    fastest = with_names(_claim(kind="fastest"), value, names)
    assert plain(spoken_text(*fastest)) == "the first has the shortest mean time, and B and c may be as fast"
    pair = with_names(_claim(kind="ratio", arm="c", over="b"), Value("ratio", 2.0, 3, 1.5, 2.5, side=1), names)
    assert plain(spoken_text(*pair)) == "is 2.00 times as fast as B"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Value("ratio", 2.0, 3, 1.5, 2.5, side=1), "makes steps 2.00 times as fast as b"),
        (Value("ratio", 2.0, 3, 1.5, 2.5), "cannot be told from b in the time of a step"),
    ],
)
def test_step_times_in_words(value: Value, said: str) -> None:
    assert plain(spoken_text(_claim(kind="ratio", arm="a", over="b", of="step time"), value)) == said


def test_the_decision_table_says_to_which_target_and_beside_whom(records: Records) -> None:
    rows = []
    for target in (None, 0.70):
        claim = _claim(kind="fastest", target=target)
        rows.append(Decision(claim, evaluate(claim, records), " e1"))
    table = decision_table("decision", "Which way.", rows, records, {"ring-fp16": "the ring"})
    assert [plain(one) for one in table.header][2] == "link, target"
    assert plain(table.header[6]) == "over one node"
    for row, decision, to in zip(table.rows, rows, ("to 95 %", "to 70 %"), strict=True):
        first = decision.value.words.split("|")[0]
        assert plain(row[2][1]) == to and plain(row[4][0]) == f"{first}{'‡' * decision.value.first_crossing} e1"
        if first == "single":
            assert plain(row[6][0]) == "–"
            continue
        gain = evaluate(_claim(kind="ratio", arm=first, over="single", target=decision.claim.target), records)
        assert gain.value is not None and plain(row[6][0]) == significant(gain.value, apart_from=1.0)
    assert [len(row[5]) for row in table.rows] == [1, 1]
    assert [plain(line) for line in table.rows[0][7]] == ["3", "4 arms"]
    marked = decision_table("decision", "", [replace(rows[0], host_bound=True)], records, {}).rows[0]
    assert plain(marked[4][0]).endswith("‡⊙ e1") and rows[0].value.first_crossing


def test_the_table_of_ratios_has_a_column_a_link_and_parentheses_where_nothing_is_told(records: Records) -> None:
    claim = _claim(kind="ratio", arm="ring-fp16", over="single")
    links = ["10 Mbit/s", "100 Mbit/s", "7 Mbit/s"]
    table = ratios_table(
        "ratios", "", links, [([phrase("ring-fp16"), phrase("over single")], claim)], records, _unbound
    )
    assert [plain(head) for head in table.header] == ["arm, over", *links]
    ((name, *cells),) = table.rows
    assert [plain(line) for line in name] == ["ring-fp16", "over single"]
    values = [evaluate(claim.model_copy(update={"where": {"link.bandwidth": link}}), records) for link in links[:2]]
    for cell, value in zip(cells, values, strict=False):
        number = significant(value.value or 0.0, apart_from=1.0)
        assert plain(cell[0]) == (number if value.side else f"({number})")
        assert plain(cell[1]) == f"[{plain(ends_text(claim, value))}]"
    assert {value.side for value in values} == {-1, 0}
    assert [plain(line) for line in cells[2]] == ["–"]  # nothing ran there
    bound = ratios_table("ratios", "", links[:1], [([], claim)], records, lambda _, __: True)
    assert "⊙" in plain(bound.rows[0][1][0])


def _unbound(_: Claim, __: Value) -> bool:
    return False


def test_the_gain_is_over_the_fastest_arm_of_one_node(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is marked where it is another one than in most rows."""
    monkeypatch.setattr("paper.program.decision._alone", lambda *_: ["single", "single(optimizer=muon)"])
    times: dict[str, float] = {"single": 4.4, "single(optimizer=muon)": 2.0}
    monkeypatch.setattr(
        "paper.program.decision._ratio",
        lambda asked, arm, over, _: (
            _claim(kind="ratio", arm=arm, over=over), Value("ratio", times[over] * (asked.target or 1.0), 5)
        ),
    )  # fmt: skip
    claim, value = _claim(kind="fastest"), Value("ratio", 1.2, 3, words="ring|ddp")
    usual = Decision(claim, value, " e1")
    other = Decision(claim, replace(value, words="single|ring"), " e2")
    assert _gain(other, records) is None
    table = decision_table("d", "", [usual, usual, other], records, {})
    assert [[plain(line) for line in row[6]] for row in table.rows] == [["2.00"], ["2.00"], ["–"]]
    monkeypatch.setattr("paper.program.decision._gain", lambda one, _: (
        _claim(kind="ratio", arm="a", over=one.mark), value
    ))  # fmt: skip
    table = decision_table("d", "So.", [other, usual, usual], records, {" e1": "one node", " e2": "one with Muon"})
    assert [[plain(line) for line in row[6]] for row in table.rows] == [["1.20*"], ["1.20"], ["1.20"]]
    assert plain(table.caption) == "So. The rival is one node, with * one with Muon."


def test_names_that_are_too_wide_for_a_table_stand_in_short_lines() -> None:
    assert [plain(line) for line in _wrapped("bytegrad, powersgd, single and ring-fp16")] == [
        "bytegrad, powersgd,",
        "single and",
        "ring-fp16",
    ]
    assert len(_wrapped("single and powersgd")) == 1 and len(_wrapped("diloco(period=16,outer_lr=0.7)")) == 1


def test_the_table_of_arms_says_what_each_is(records: Records) -> None:
    (table,) = arms_table("arms", "What each arm is.", records.done("study"))
    rows = {plain(row[0][0]): [[plain(line) for line in cell] for cell in row] for row in table.rows}
    assert list(rows) == sorted(rows) and set(rows) == {"ddp", "ring-fp16", "threshold", "single"}
    assert rows["ring-fp16"][2] == ["ring"] or rows["ring-fp16"][2][0] == "ring"
    assert rows["ring-fp16"][3][0] == "fp16" and rows["ddp"][3] == ["–"]
    assert all(cells[5][0] not in ("", "–") for cells in rows.values()), "every arm has its rate"
    halves = [
        evaluate(_claim(kind="value", arm=arm, of="wire bytes per step"), records).value for arm in ("ddp", "ring-fp16")
    ]
    assert halves[0] is not None and rows["ddp"][6] == [MEMORY.show(halves[0], 3)]
    assert not list(arms_table("arms", "None.", []))


def test_the_table_of_studies_says_how_each_was_made(records: Records) -> None:
    (table,) = studies_table("studies", "How.", ["nobody", "study"], records)
    ((name, nodes, target, limit, every, _, slow, timed, num, bound, crossings),) = (
        [plain(cell[0]) for cell in row] for row in table.rows
    )
    assert (name, target, slow, timed, num) == ("study", "95 %", "1", "whole", "3")
    assert nodes.isdigit() and limit.isdigit() and every.isdigit() and bound.startswith("0/")
    assert crossings.split("/")[0] == crossings.split("/")[1]
    assert not list(studies_table("studies", "How.", ["nobody"], records))


def test_a_step_time_rests_on_its_timing_runs(records: Records) -> None:
    value = Value("ratio", 2.0, 3, 1.8, 2.2, side=1, num_timed=1)
    assert plain(row_texts(Row(1, _claim(kind="ratio", arm="a", over="b", of="step time"), value))[3]) == "1 timed"
    whole = evaluate(_claim(kind="ratio", arm="ring-fp16", over="ddp", of="step time"), records)
    assert whole.num_timed is None, "cells that ran whole were each timed by themselves"
