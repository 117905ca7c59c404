"""benchmarks/adaptive.py: what is fitted, chosen and written, from trainings that never were."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from bwbench.experiment.config import load_experiment
from bwbench.methods.algorithms.deco_choice import DecoSetting, DecoSgdConfig, steps_needed
from bwbench.records.schema import Step

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import adaptive

SETTINGS = [DecoSetting(ratio, late) for ratio in (0.001, 0.003, 0.01, 0.03) for late in (0, 1)]


def needed(ratio_cost, staleness_cost, limit=10**9):
    found = {one: 5000 * steps_needed(one, ratio_cost, staleness_cost) for one in SETTINGS}
    return {one: (min(samples, limit), samples <= limit) for one, samples in found.items()}


@pytest.mark.parametrize("costs", [(0.0, 0.0), (0.001, 0.5), (0.005, 1.2)])
def test_costs_are_found_again(costs):
    found = adaptive.fit_costs(needed(*costs))
    assert (found.ratio_cost, found.staleness_cost) == pytest.approx(costs, rel=0.15, abs=0.02)
    assert found.error < 0.02


def test_settings_that_did_not_arrive_need_more_and_never_less():
    """One that is late needs 2.2 times as much, which is more than its limit."""
    arrived = needed(0.001, 1.2, limit=13_000)
    assert sum(did for _, did in arrived.values()) < len(SETTINGS)
    assert adaptive.fit_costs(arrived).staleness_cost > 0.9
    with pytest.raises(SystemExit, match="fewer than three"):
        adaptive.fit_costs(needed(0.001, 1.2, limit=5000))


def test_costs_as_options_switch_staleness_off_where_it_cannot_pay():
    for cost in (0.4, 1.0):
        options = DecoSgdConfig(**adaptive.Costs(0.00123, cost, 0.1).options())
        assert (options.ratio_cost, options.staleness_cost) == (0.0012, cost)
        assert options.first.staleness == (1 if cost < 1 else 0)


def test_pace_is_that_of_the_slowest_rank_and_goes_on_as_it_was():
    def steps(late_s):
        return [Step(step=n, samples=100 * n, clock_s=n * n + late_s, duration_s=1.0) for n in (1, 2, 3, 4)]

    ranks = {0: steps(0), 1: steps(1)}
    assert adaptive.pace(ranks, 100, 200) == 5
    assert adaptive.pace(ranks, 100, 250) == 7.5
    assert adaptive.pace(ranks, 100, 800) == 2 * 17


def test_the_fastest_of_each_link_is_chosen():
    some, other = SETTINGS[:2]
    raced = [adaptive.Raced(link, one, s) for link, one, s in [("a", some, 3), ("b", some, 1), ("a", other, 2)]]
    assert {link: one.setting for link, one in adaptive.best_of(raced).items()} == {"a": other, "b": some}


def test_what_is_written_is_an_experiment_with_the_best_of_each_link_and_the_adaptive_one(tmp_path):
    base = yaml.safe_load(adaptive.RACE.read_text())
    base["matrix"][adaptive.LINK] = [[None, "2 Mbit/s", []], [None, "4 Mbit/s", [{"at": "4 s", "duration": "2 s"}]]]
    content = adaptive.best_experiment(base, SETTINGS[:2], [{"deco-sgd": {"staleness_cost": 0.4}}])
    file = tmp_path / "best.yaml"
    file.write_text(yaml.safe_dump(content | {"optimizer": {"sgd": {"lr": 0.1}}}, sort_keys=False))
    experiment = load_experiment(file)
    assert (experiment.name, experiment.most_repeats, experiment.warnings) == ("adaptive", 5, ())
    found = [(point.config.algorithm.options, point.config.link.bandwidth_bps) for point in experiment.points]
    assert [(options.first, options.adapts, bps) for options, bps in found] == [
        (SETTINGS[0], False, 2e6),
        (DecoSetting(0.01, 1), True, 2e6),
        (SETTINGS[1], False, 4e6),
        (DecoSetting(0.01, 1), True, 4e6),
    ]
    raced = range(base["seed"], base["seed"] + base["repeats"])
    assert not set(raced) & {point.config.seed + n for point in experiment.points for n in range(5)}


def test_traces_are_copied_once_and_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(adaptive, "TRACES", {"wifi/one.txt": "0" * 64})
    source, target = tmp_path / "data", tmp_path / "traces"
    with pytest.raises(SystemExit, match="no such trace"):
        adaptive.copy_traces(source, target)
    (source / "traces" / "wifi").mkdir(parents=True)
    (source / "traces" / "wifi" / "one.txt").write_text("0\t1\n")
    with pytest.raises(SystemExit, match="not the trace that is meant"):
        adaptive.copy_traces(source, target)
