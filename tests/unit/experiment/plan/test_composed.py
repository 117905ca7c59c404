from dataclasses import replace

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config.cell_config import MAX_SEED
from bwbench.experiment.config.experiment import WholeConfig
from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.plan import assess, build_plan, estimate_cells, foresee
from bwbench.experiment.plan.calibration import Calibration
from bwbench.experiment.plan.composing import (
    CHECKED,
    COMPOSED,
    choose_whole,
    convergence_config,
    parts_of,
    runs_whole_anyway,
    ways,
)
from bwbench.experiment.plan.described_models import Description
from bwbench.methods.phases import LEAST_PERIODS, LEAST_STEPS, UNTIMED_STEPS, walk
from bwbench.network.link.node_link import TcpSettings
from bwbench.records import write_json_atomic

EXPERIMENT = """
name: study
nodes: 2
link: {bandwidth: 10 Mbit/s, latency: 1 ms}
model: logistic
dataset: digits
target: {accuracy: 0.9}
limit: {samples: 50000}
mode: composed
"""
MATRIX = """
matrix:
  link.bandwidth: [1 Mbit/s, 10 Mbit/s, 100 Mbit/s]
  algorithm: [ring, ring-fp16, local-sgd, post-local-sgd]
repeats: 2
"""


@pytest.fixture(autouse=True)
def described(monkeypatch):
    """A model that no process has to be asked about."""
    known = Description(650, ((10, 64), (10,)), 0.001)
    monkeypatch.setattr("bwbench.experiment.plan.composing.describe", lambda configs: [known] * len(configs))


@pytest.fixture
def load(tmp_path):
    def load(text: str = "", *overrides: str):
        file = tmp_path / "study.yaml"
        file.write_text(EXPERIMENT + text)
        return load_experiment(file, overrides)

    return load


def test_one_convergence_run_for_all_links_and_one_timing_run_for_all_repeats(load) -> None:
    cells = build_plan(load(MATRIX)).cells
    parts = [parts_of(cell) for cell in cells]
    assert len(cells) == 24
    assert len({part.convergence.id for part in parts}) == 4 * 2
    assert len({part.timing.id for part in parts}) == 4 * 3
    for part in parts:
        assert not part.convergence.config.link.shaped
        assert part.timing.config.link.shaped
        assert part.timing.config.seed == 0
        assert part.timing.config.target is None


def test_further_timing_runs_differ_in_their_seed_and_leave_the_first_as_it_is(load) -> None:
    cell = build_plan(load(MATRIX, "seed=4")).cells[0]
    one, three = parts_of(cell), parts_of(cell, timing_runs=3)
    assert one.timings == three.timings[:1] and three.timing is three.timings[0]
    assert [part.config.seed for part in three.timings] == [4, 5, 6]
    assert [part.repeat for part in three.timings] == [0, 1, 2]
    assert len({part.id for part in three.timings}) == len({part.slug for part in three.timings}) == 3
    last = build_plan(load(MATRIX, f"seed={MAX_SEED - 2}")).cells[0]
    assert [part.config.seed for part in parts_of(last, timing_runs=4).timings][-1] == 0


def test_a_timing_run_is_short_and_covers_all_phases(load) -> None:
    for cell in build_plan(load(MATRIX)).cells:
        parts = parts_of(cell)
        config = parts.timing.config
        steps = config.limit.samples // config.global_batch
        assert LEAST_STEPS <= steps <= 160
        kinds = [step.kind for step in walk(parts.timing_phases, steps)]
        assert set(kinds) >= {step.kind for step in walk(parts.phases, 2000)}
        assert min(kinds.count(kind) for kind in kinds) >= LEAST_PERIODS
        hurried = any(phase.num_steps is not None for phase in parts.timing_phases)
        assert (config.optimizer.options.lr < cell.config.optimizer.options.lr) == hurried


def test_a_timing_run_has_enough_steps_for_the_mean_of_drawn_times(load) -> None:
    def steps(*overrides: str) -> int:
        config = parts_of(build_plan(load("", *overrides)).cells[0]).timing.config
        return config.limit.samples // config.global_batch

    drawn = "compute.step_time={mean: 60 ms, spread: 30 %}"
    assert steps("compute.step_time=60 ms") == 66
    assert steps(drawn) == 102 and steps("compute.step_time={mean: 60 ms, spread: 10 %}") == 66
    assert steps("compute.step_time=60 ms", "compute.overrides={1: {step_time: {mean: 60 ms, spread: 30 %}}}") == 102
    cell = build_plan(load("", drawn)).cells[0]
    assert parts_of(cell).convergence.id == parts_of(build_plan(load()).cells[0]).convergence.id
    assert runs_whole_anyway(build_plan(load("", drawn, "limit.samples=5000")).cells[0].config)


def test_in_slow_motion_a_timing_run_has_the_steps_that_the_machine_has_time_for(load) -> None:
    def timed(*overrides: str) -> tuple[float, int]:
        config = parts_of(build_plan(load("", "compute.step_time=100 ms", *overrides)).cells[0]).timing.config
        return config.dilation, config.limit.samples // config.global_batch

    assert timed() == (1, 66) and timed("dilation=4") == (4, LEAST_STEPS + UNTIMED_STEPS + 4)
    assert timed("link.bandwidth=100 kbit/s", "dilation=4")[0] == 4


def test_what_the_convergence_run_does_not_depend_on(load) -> None:
    """Neither link, nor declared step time, nor a limit of the training clock, which is another one there."""
    plain = parts_of(build_plan(load()).cells[0]).convergence
    padded = load("", "compute.step_time=1 s", "limit.time=10 s", "link.latency=50 ms")
    assert parts_of(build_plan(padded).cells[0]).convergence.id == plain.id
    assert parts_of(build_plan(load("", "seed=1")).cells[0]).convergence.id != plain.id


def test_rings_that_are_paced_and_not_learn_the_same(load) -> None:
    how = ["algorithm=ring", "algorithm=ring-unpaced", "algorithm=ring-fp16"]
    paced, unpaced, halved = (parts_of(build_plan(load("", one)).cells[0]) for one in how)
    assert paced.convergence.id == unpaced.convergence.id != halved.convergence.id
    assert paced.convergence.slug == unpaced.convergence.slug  # one folder
    assert paced.timing.id != unpaced.timing.id


def test_the_convergence_run_has_the_curve_of_the_test_split_and_timing_runs_stay_as_they_are(load) -> None:
    always, as_ever = (build_plan(load(MATRIX, *how)).cells for how in (["evaluate.test=always"], []))
    for one, other in zip(always, as_ever, strict=True):
        parts, before = parts_of(one, timing_runs=3), parts_of(other, timing_runs=3)
        assert parts.convergence.config.evaluate.test == "always" and parts.convergence.id != before.convergence.id
        assert [timing.id for timing in parts.timings] == [timing.id for timing in before.timings]


def test_parts_keep_the_length_of_the_whole_training(load) -> None:
    """A timing run is short, and steps as at the begin of the cell that it is for; averages cost it their time."""
    how = ["optimizer={sgd: {lr: 0.1, decay: linear}}", "weight_average={tail: 25 %}"]
    cell = build_plan(load("", *how)).cells[0]
    parts = parts_of(cell)
    budget = float(cell.config.limit.samples)
    for part in (parts.convergence.config, parts.timing.config):
        assert part.optimizer.options.decay_over == part.weight_average.options.over_samples == budget
    assert parts.timing.config.limit.samples < budget
    plain = parts_of(build_plan(load()).cells[0])
    assert parts.convergence.id != plain.convergence.id and parts.timing.id != plain.timing.id


def test_where_composing_saves_nothing_cells_run_whole(load) -> None:
    unshaped = build_plan(load("", "link=unshaped")).cells[0]
    assert runs_whole_anyway(unshaped.config)
    convergence = convergence_config(unshaped.config)
    assert convergence.model_dump() == unshaped.config.model_dump()
    assert convergence.compute.virtual and not unshaped.config.compute.virtual
    assert runs_whole_anyway(build_plan(load("", "limit.samples=600")).cells[0].config)
    assert not runs_whole_anyway(build_plan(load()).cells[0].config)
    padded = build_plan(load("", "link=unshaped", "compute.step_time=100 ms")).cells[0]
    assert not runs_whole_anyway(padded.config)


def test_bytes_cost_what_the_link_takes_for_them(load) -> None:
    slow, fast = (parts_of(build_plan(load("", f"link.bandwidth={rate} Mbit/s")).cells[0]) for rate in (1, 100))
    assert slow.seconds_per_byte == pytest.approx(100 * fast.seconds_per_byte)
    assert 4e-6 < slow.seconds_per_byte < 9e-6  # a byte of either node takes 8 µs, and both send at the same time


@pytest.mark.parametrize(("whole", "number"), [({}, 4), ({"share": 0.5}, 12), ({"at_least": 0}, 3), ({"share": 1}, 24)])
def test_a_share_runs_whole(load, whole, number) -> None:
    experiment = load(MATRIX, *(f"whole.{key}={value}" for key, value in whole.items()))
    found = ways(experiment, build_plan(experiment).cells)
    assert list(found.values()).count(CHECKED) == number
    assert list(found.values()).count(COMPOSED) == 24 - number


def test_the_share_is_spread_over_links_and_arms(load) -> None:
    cells = build_plan(load(MATRIX)).cells
    chosen = choose_whole(cells, WholeConfig(share=0, at_least=4))
    assert len({cell.arm for cell in chosen}) == 4
    assert len({cell.config.link.describe() for cell in chosen}) == 3
    chosen = choose_whole(cells, WholeConfig(share=0.5))
    assert len({(cell.arm, cell.config.link.describe()) for cell in chosen}) == 12


def test_links_that_read_the_same_are_two(load) -> None:
    first = build_plan(load()).cells[0]
    link = first.config.link.model_copy(update={"tcp": TcpSettings(receive_buffer="1 MB")})
    other = replace(first, id="1", config=first.config.model_copy(update={"link": link}))
    assert link.describe() == first.config.link.describe()
    chosen = choose_whole([first, replace(first, id="2"), other], WholeConfig(share=0, at_least=2))
    assert [cell.id for cell in chosen] == [first.id, "1"]


def test_the_choice_does_not_depend_on_what_is_done_or_asked_twice(load) -> None:
    experiment = load(MATRIX)
    cells = build_plan(experiment).cells
    assert ways(experiment, cells) == ways(experiment, cells)


def test_a_limit_of_time_leaves_out_what_does_not_fit(load) -> None:
    cells = build_plan(load(MATRIX)).cells
    chosen = choose_whole(cells, WholeConfig(share=1, at_least=2, time="50 s"), lambda cell: 10.0)
    assert len(chosen) == 5
    chosen = choose_whole(cells, WholeConfig(share=1, at_least=2, time="5 s"), lambda cell: 10.0)
    assert len(chosen) == 2


def test_full_mode_composes_nothing_and_says_that_whole_is_idle(load) -> None:
    experiment = load("whole: {share: 0.5}\n", "mode=full")
    assert ways(experiment, build_plan(experiment).cells) == {}
    assert any("'whole' has no effect" in text for text in experiment.warnings)
    timed = load("timing: {runs: 2}\n", "mode=full")
    assert any("'timing' has no effect" in text for text in timed.warnings)


def test_links_are_timed_three_times_unless_an_experiment_says_otherwise(load) -> None:
    assert load("").timing.runs == 3
    assert load("timing: {runs: 5}\n").timing.runs == 5
    assert load("timing: {runs: 5}\n", "timing.runs=2").timing.runs == 2


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("", ["algorithm=async"], "algorithm 'async'.*depends on the link"),
        ("", ["algorithm={local-sgd: {overlap: auto}}"], "overlap: auto"),
        ("", ["algorithm={every-step: {bucket: auto}}"], "bucket: auto"),
        ("", ["link.outages=[{at: 1 s, duration: 1 s}]"], "changes over time"),
        ("", ["mode=compose"], "'compose' is no mode. Did you mean 'composed'"),
        ("whole: {share: 2}\n", [], "whole.share: 2 is out of range"),
        ("whole: {shares: 0.2}\n", [], "unknown key 'shares'. Did you mean 'share'"),
        ("timing: {runs: 0}\n", [], "timing.runs: 0 is out of range"),
        ("timing: {run: 2}\n", [], "unknown key 'run'. Did you mean 'runs'"),
        ("whole: 3\n", [], "whole: 3 is not a mapping"),
        ("whole: {time: 30}\n", [], "whole.time.*30"),
        ("", ["whole.at_least=true"], "whole.at_least: true"),
    ],
)
def test_what_cannot_be_composed_or_read_is_refused_with_the_reason(load, text, overrides, message) -> None:
    with pytest.raises(ConfigError, match=message):
        load(text, *overrides)


def test_a_fixed_overlap_is_composed(load) -> None:
    assert load("", "algorithm={local-sgd: {overlap: 4}}").mode == "composed"


def test_parts_count_once_in_what_a_sweep_takes(load, monkeypatch, tmp_path) -> None:
    """Convergence runs for the first link, timing runs for the first repeat, and nothing once they are done."""
    known = Description(650, ((10, 64), (10,)), 0.001)
    for module in ("estimate", "calibration"):
        monkeypatch.setattr(f"bwbench.experiment.plan.{module}.describe", lambda configs: [known] * len(configs))
    experiment = load(MATRIX, "whole.share=0", "whole.at_least=0")
    cells = build_plan(experiment).cells
    items = assess(cells, tmp_path, ways=ways(experiment, cells))

    def expected_s(items):
        found = foresee(items)
        return [found.predict(item).total_s for item in items]

    convergence = {parts_of(cell).convergence.id: parts_of(cell).convergence for cell in cells}
    timing = {parts_of(cell).timing.id: parts_of(cell).timing for cell in cells}
    by_itself = Calibration(estimate_cells([*convergence.values(), *timing.values()]))
    parts_s = {cell.id: by_itself.predict(cell).total_s for cell in (*convergence.values(), *timing.values())}
    found_s = expected_s(items)
    assert sum(found_s) == pytest.approx(sum(parts_s.values()))
    assert found_s[-1] == 0  # the last link of the second repeat
    whole = assess(cells, tmp_path)
    assert sum(found_s) < 0.6 * sum(expected_s(whole))
    for cell, store in [(c, tmp_path / ".convergence") for c in convergence.values()]:
        (store / cell.folder_name).mkdir(parents=True)
        write_json_atomic(
            store / cell.folder_name / "status.json", {"id": cell.id, "slug": cell.slug, "status": "done"}
        )
    timed_s = sum(parts_s[cell_id] for cell_id in timing)
    assert sum(expected_s(items)) == pytest.approx(timed_s)
    other = [
        replace(item, cell=replace(item.cell, experiment="other"), folder=tmp_path / "other" / item.folder.name)
        for item in items
    ]
    assert sum(expected_s([*items, *other])) == pytest.approx(2 * timed_s)  # timing is not shared
    thrice = assess(cells, tmp_path, ways=ways(experiment, cells), timing_runs=3)
    assert sum(expected_s(thrice)) == pytest.approx(3 * timed_s)
