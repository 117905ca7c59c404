"""The answer: what its sentences say of arms that are sooner, alike, unknown, or one node alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from fixtures_records import Study, role_of_preset, write_study

from bwbench.records import iter_cells
from bwbench.results.analysis.answer import (
    _called,
    answer_at,
    answer_phrase,
    answers,
    counted,
    one_node_words,
    setting_phrase,
    shared_phrases,
    whole_phrase,
)
from bwbench.results.analysis.arm_cells import ArmCells
from bwbench.results.analysis.grouping import group_cells
from bwbench.results.analysis.host_bound import OwnSteps
from bwbench.results.analysis.statistics import Arrival
from bwbench.results.text import LatexWriter, MarkdownWriter, plain

Times = Mapping[str, tuple[float | None, ...]]  # of each seed; None: not reached within 100 s
TEN = 10e6


def arms(times: Times, samples: Mapping[str, float] | None = None, **about: object) -> dict[str, ArmCells]:
    """Arms with times of their own; ``samples`` to the target by name, ``about`` for every row."""
    found = {}
    for name, of_seeds in times.items():
        role = role_of_preset(name)
        row = {
            "role": role, "nodes": 1 if role == "reference" else 4, "model": "cnn", "dataset": "digits",
            "global_batch": 32 if role == "reference" else 128, "target_metric": "accuracy", "target_value": 0.87,
            "composed": False, "host_bound": False, "arrival_kind": "fit", **about,
        }  # fmt: skip
        taken = (samples or {}).get(name)
        arrivals = {seed: Arrival(time, 100.0 if time is None else None, samples=taken)
                    for seed, time in enumerate(of_seeds)}  # fmt: skip
        found[name] = ArmCells(name, [], [row for _ in of_seeds], arrivals)
    return found


def said(times: Times, baseline: str | None = "ddp", **more: object) -> str:
    racing = {TEN: arms(times, **more)}  # type: ignore[arg-type]
    return plain(answer_phrase(answer_at(TEN, racing, baseline)))


SURE = {"ddp": (100.0, 104.0, 98.0), "diloco": (10.0, 10.4, 9.8), "single": (20.0, 20.8, 19.6)}


def test_who_is_sooner_and_by_how_much() -> None:
    text = said(SURE)
    assert text.startswith("use diloco: 87 % in 10 s (")
    assert re.search(
        r", 10 times \([\d.]+ to [\d.]+\) sooner than ddp, 2\.0 times \(1\.\d to 2\.\d\) sooner than one node\.", text
    )
    assert text.endswith(" [measured, n = 3]")
    assert "perhaps" not in text and "Not distinguishable" not in text and "Nothing is known" not in text


def test_what_chance_may_have_done_is_said() -> None:
    text = said({**SURE, "ring": (10.1, 10.6, 9.9), "single": (10.0, 14.0, 9.0)})
    assert "perhaps 1.1 times" in text
    assert re.search(r"\. Not distinguishable from diloco: (ring, one node|one node, ring)\. ", text)


def test_one_arm_is_not_both_certainly_slower_and_not_distinguishable() -> None:
    """Its own interval leaves 1 out; tested together with six others it may be as fast."""
    others = {f"arm{number}": (50.0 + number, 52.0, 49.0) for number in range(6)}
    text = said({"diloco": (10.0, 10.6, 9.5), "ddp": (11.6, 12.2, 11.2), **others})
    low = re.search(r"perhaps 1\.\d+ times \((1\.\d+) to 1\.\d+\) sooner than ddp", text)
    assert low is not None and float(low[1]) > 1 and "Not distinguishable from diloco: ddp." in text, text


def test_a_ratio_is_taken_apart_beside_the_baseline() -> None:
    text = said(SURE, samples={"ddp": 1000.0, "diloco": 2000.0})
    assert "Beside ddp its steps are 20 times as cheap, and it takes 2.0 times the samples." in text
    dear = said(SURE, samples={"ddp": 40_000.0, "diloco": 2000.0})
    assert "its steps are 2.0 times as dear, and it takes 0.050 times the samples" in dear
    assert "Beside" not in said(SURE), "the samples are not known"
    assert "Beside" not in said(SURE, baseline=None, samples={"ddp": 1000.0, "diloco": 2000.0})


def test_factors_that_may_be_one_are_not_numbers() -> None:
    text = said({"ddp": (10.0, 14.0, 12.0), "ring": (9.0, 11.0, 8.0)}, samples={"ddp": 1000.0, "ring": 1000.0})
    assert "Beside ddp its steps may take as long, and it may take as many samples." in text


def test_one_repeat_says_nothing_about_chance() -> None:
    text = said({"ddp": (11.1,), "single": (2.43,)})
    assert text == (
        "one node was first: 87 % in 2.4 s, 4.6 times sooner than ddp. One repeat says nothing about chance. "
        "[measured, n = 1]"
    )


def test_a_bound_below_one_is_not_said() -> None:
    """ddp was ended before the first one had arrived: whether it would have been later is unknown."""
    racing = arms({"ring": (110.0,), "ddp": (None,)})
    assert plain(answer_phrase(answer_at(TEN, {TEN: racing}, "ddp"))) == (
        "ring was first: 87 % in 110 s. One repeat says nothing about chance. [measured, n = 1]"
    )


def test_one_node_may_be_the_answer() -> None:
    text = said({"ddp": (100.0, 104.0, 98.0), "diloco": (20.0, 20.8, 19.6), "single": (10.0, 10.4, 9.8)})
    assert text.startswith("use one node: 87 % in 10 s")
    assert "sooner than ddp" in text and "sooner than diloco" in text and "Beside" not in text


def test_who_does_not_arrive_leaves_a_bound() -> None:
    text = said({"ddp": (None, None, None), "diloco": (10.0, 10.4, 9.8)})
    assert "more than 9" in text and "times sooner than ddp" in text
    assert said({"ddp": (None, None), "ring": (None,)}) == (
        "no arm reaches 87 % in most of its repeats. [measured, n = 1]"
    )


def test_of_too_few_repeats_nothing_is_known() -> None:
    assert "Nothing is known of ring: " in said({**SURE, "ring": (10.5,)})
    text = said({"ddp": (14.0,), "ring": (10.0, 10.4, 9.8)})
    assert "sooner than ddp" not in text and "Nothing is known of ddp: " in text and text.endswith("n = 3]")


def test_what_times_rest_on_is_said() -> None:
    text = said(SURE, composed=True, host_bound=True, arrival_kind="first crossing")
    assert text.endswith("[composed, first crossings, host-bound, n = 3]")


def test_a_loss_is_said_as_one() -> None:
    assert said(SURE, target_metric="loss", target_value=2.2).startswith("use diloco: loss 2.2 in 10 s")


def test_names_of_several_lone_nodes_are_told_apart() -> None:
    both = arms(SURE) | {
        "single(lr)": ArmCells("single(lr)", [], arms(SURE)["single"].rows, arms(SURE)["ddp"].arrivals)
    }
    text = plain(answer_phrase(answer_at(TEN, {TEN: both}, "ddp")))
    assert "sooner than one node (single)" in text
    assert _called("single(lr)", ["single", "single(lr)"], {}) == "one node (lr)"
    assert _called("muloco-1(period=16)", ["single", "muloco-1(period=16)"], {}) == "one node (muloco-1, period=16)"


def crossing() -> dict[float | None, dict[str, ArmCells]]:
    """A method that is bound by its link beside one node; they meet at 10 Mbit/s."""

    def of(mbps: float) -> Times:
        return {"single": (10.0, 10.2, 9.9), "ring": tuple(100.0 / mbps * (1 + e) for e in (0.0, 0.02, -0.01))}

    return {mbps * 1e6: arms(of(mbps)) for mbps in (1.0, 5.0, 20.0, 100.0)}


def test_below_which_bandwidth_one_node_is_enough() -> None:
    racing = crossing()
    slow, fast = (plain(answer_phrase(answer_at(bps, racing, None))) for bps in (1e6, 1e8))
    where = re.compile(r"Below (9\.\d|10) Mbit/s \([\d.]+ Mbit/s to [\d.]+ Mbit/s\) use one node\.")
    assert slow.startswith("use one node: ") and where.search(slow)
    assert fast.startswith("use ring: ") and where.search(fast)


def test_in_a_list_it_is_said_once() -> None:
    racing = crossing()
    found = [answer_at(bps, racing, None) for bps in racing]
    assert not any("Below" in plain(answer_phrase(one, in_list=True)) for one in found)
    assert [plain(sentence).partition(" Mbit/s")[0] for sentence in shared_phrases(found)] == ["Below 10"]


def test_in_a_list_with_several_first_methods_each_sentence_says_beside_which() -> None:
    racing = crossing()
    for bps, here in racing.items():
        assert bps is not None
        here["ddp"] = arms({"ddp": tuple(300.0 / (bps / 1e6) * (1 + e) for e in (0.0, 0.02, -0.01))})["ddp"]
    fast = {name: arm for name, arm in racing[1e8].items() if name != "ring"}
    found = [answer_at(2e7, racing, None), answer_at(1e8, {**racing, 1e8: fast}, None)]
    assert [re.sub(r" Mbit/s.*", "", plain(sentence)) for sentence in shared_phrases(found)] == [
        "Beside ring: below 10", "Beside ddp: below 30"
    ]  # fmt: skip


def test_where_the_machine_decides_it_is_unknown() -> None:
    racing = {bps: {name: ArmCells(arm.name, [], [{**row, "host_bound": True} for row in arm.rows], arm.arrivals)
                    for name, arm in here.items()} for bps, here in crossing().items()}  # fmt: skip
    assert "one node is enough is unknown: the machine" in plain(answer_phrase(answer_at(1e8, racing, None)))


def test_beyond_what_was_measured_only_a_side_is_known() -> None:
    racing = {bps: here for bps, here in crossing().items() if bps is not None and bps < 1e7}
    text = plain(answer_phrase(answer_at(1e6, racing, None)))
    assert re.search(r"Up to [\d.]+ Mbit/s one node is sooner than ring; what comes behind is unknown\.", text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    for latency in ("1 ms", "50 ms"):
        arms = ("ddp", "threshold", "single", "no-communication")
        write_study(root, Study("sweep", arms=arms, bandwidths_mbps=(1.0, 100.0), latency=latency, limit_s=60.0))
    return root


def test_every_link_of_every_group_has_its_answer(folder: Path) -> None:
    found = answers(iter_cells(folder))
    assert [(one.settings, one.bandwidth_bps) for one in found] == [
        ((f"latency {latency}",), bps) for latency in ("1 ms", "50 ms") for bps in (1e6, 1e8)
    ]
    assert plain(setting_phrase(found[0])) == "four nodes, cnn on digits, latency 1 ms"
    assert plain(whole_phrase(found[0])).startswith("Four nodes, 1 Mbit/s, cnn on digits, latency 1 ms: use ")
    for one in found:
        assert "no-communication" not in plain(whole_phrase(one)), "no link is like that"
    assert found == answers(iter_cells(folder), "ddp")
    assert {one.arm for answer in answers(iter_cells(folder), "threshold") for one in answer.against} >= {"threshold"}


def test_each_method_knows_where_one_node_is_enough(folder: Path) -> None:
    cells = list(iter_cells(folder))
    words = [one_node_words(group, OwnSteps.of(cells)) for group in group_cells(cells)]
    assert all(set(of_group) <= {"ddp", "threshold"} for of_group in words) and any(words)


def test_virtual_nodes_have_no_answer(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ddp", "ring"), environment={"virtual": True}))
    assert answers(iter_cells(tmp_path)) == []


def test_it_is_written_in_every_format(folder: Path) -> None:
    text = whole_phrase(answers(iter_cells(folder))[0])
    latex = LatexWriter()
    assert r"\bwAnswerTime" in latex.write(text) and latex.macros
    assert r"\[measured, first crossings, n = 3\]" in MarkdownWriter().write(text)


def test_numbers_of_nodes_are_words_as_long_as_people_say_them() -> None:
    assert [counted(number, "node") for number in (1, 4, 12, 13)] == [
        "one node",
        "four nodes",
        "twelve nodes",
        "13 nodes",
    ]
