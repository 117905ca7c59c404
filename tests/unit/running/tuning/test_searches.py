"""From an experiment to its searches and their trials."""

from __future__ import annotations

import pytest

from bwbench.base.errors import ConfigError
from bwbench.running.tuning.search import searches_of
from bwbench.running.tuning.trainings import Training
from tests.unit.running.tuning.tables import BASE, load

PLAIN = BASE.replace("{tuned: rates.yaml}", "{sgd: {lr: 0.3, momentum: 0.5}}")


def test_trials_differ_from_the_experiment_in_link_speed_limit_and_seed_alone(tmp_path):
    experiment = load(tmp_path, PLAIN)
    (search,) = searches_of(experiment, seed=1000)
    asked = experiment.points[0].config.model_dump(mode="json", by_alias=True)
    trial = search.cell(Training(0.1)).config.model_dump(mode="json", by_alias=True)
    assert {key for key in asked if asked[key] != trial[key]} == {
        *("link", "compute", "evaluate", "limit", "stop", "seed", "optimizer")
    }
    assert trial["evaluate"] == {**asked["evaluate"], "test": "end"}, "validation decides"
    assert trial["link"]["shaped"] is False and trial["compute"]["step_time"] is None and trial["seed"] == 1000
    assert trial["limit"] == {"samples": 4000, "time": None}, "samples count, on whatever machine"
    assert trial["optimizer"] == {**asked["optimizer"], "lr": 0.1}


def test_trials_look_at_the_test_split_once(tmp_path):
    trials = [
        searches_of(load(tmp_path, PLAIN, *how), seed=1000)[0].cell(Training(0.1))
        for how in ([], ["evaluate.test=always"])
    ]
    assert trials[0].id == trials[1].id


def test_links_and_kin_share_a_search_and_arms_models_nodes_and_batches_do_not(tmp_path):
    axes = [
        ("link.bandwidth: [1 Mbit/s, 10 Mbit/s]", 1),
        ("optimizer.lr: [0.1, 0.2]", 1),
        ("algorithm: [ddp, ring, parameter-server, no-communication, ring-fp16]", 1),
        ("algorithm: [ddp, ring, single]", 2),
        ("compression: [{top-k: {ratio: 0.01}}, {top-k: {ratio: 0.1}}]", 2),
        ("model: [logistic, mlp]", 2),
        ("nodes: [2, 4]", 2),
        ("batch_size: [8, 16]", 2),
        ("target.accuracy: [0.8, 0.9]", 2),
        ("optimizer.momentum: [0, 0.9]", 2),
    ]
    for axis, count in axes:
        searches = searches_of(load(tmp_path, PLAIN + f"matrix: {{{axis}}}\n"), seed=1000)
        assert len(searches) == count, axis
        assert len({search.cell(Training(0.1)).id for search in searches}) == count


def test_kin_train_once_and_the_search_names_all_of_them(tmp_path):
    (search, other) = searches_of(load(tmp_path, PLAIN + "matrix: {algorithm: [ring-fp16, top-k, ddp]}\n"), seed=1000)
    assert (search.arm, search.arms, other.arms) == ("ring-fp16", ("ring-fp16", "ddp"), ("top-k",))
    assert search.budget == other.budget == 17
    first, again = (search.cell(Training(0.1, number=number)).config for number in (0, 2))
    assert (first.seed, again.seed) == (1000, 1002) and first == again.model_copy(update={"seed": 1000})


def test_one_search_for_cells_with_several_limits_or_evaluations_says_which_it_takes(tmp_path):
    axes = "algorithm: [ring, qsgd], limit.samples: [4000, 8000], evaluate.every: [500 samples, 250 samples]"
    searches = searches_of(load(tmp_path, PLAIN + f"matrix: {{{axes}}}\n"), seed=1000)
    assert [(search.config.limit.samples, search.config.evaluate.every_samples) for search in searches] == [
        (4000, 500)
    ] * 2
    every, limit = searches[0].notes
    assert "ring (" in limit and "limit.samples has the values 4000, 8000" in limit and limit.endswith("takes 4000")
    assert "evaluate.every has the values 500 samples, 250 samples" in every
    (search,) = searches_of(load(tmp_path, PLAIN + "matrix: {link.bandwidth: [1 Mbit/s, 10 Mbit/s]}\n"), seed=1000)
    assert search.notes == ()


@pytest.mark.parametrize(
    ("targets", "middle"),
    [
        ("[{accuracy: 0.9}, {accuracy: 0.7}, {accuracy: 0.8}]", {"accuracy": 0.8}),
        ("[{accuracy: 0.7}, {accuracy: 0.8}]", {"accuracy": 0.8}),
        ("[{loss: 0.3}, {loss: 0.5}, {loss: 0.4}]", {"loss": 0.4}),
    ],
)
def test_of_several_targets_the_middle_one_decides(tmp_path, targets, middle):
    text = PLAIN.replace("target: {accuracy: 0.9}", f"targets: {targets}")
    (search,) = searches_of(load(tmp_path, text), seed=1000)
    target = search.config.target
    assert {target.metric: target.value} == middle and search.config.all_targets == (target,)


def test_without_a_target_the_loss_at_the_limit_decides(tmp_path):
    (search,) = searches_of(load(tmp_path, PLAIN.replace("target: {accuracy: 0.9}\n", "")), seed=1000)
    assert search.config.stop == "limit"


def test_every_arm_gets_an_optimizer_that_suits_it_where_the_table_is_to_name_it(tmp_path):
    text = BASE + "matrix: {algorithm: [ring, dgc, qadam]}\n"
    ring, dgc, qadam = searches_of(load(tmp_path, text, tuning=True), seed=1000)
    assert ring.config.optimizer.to_json()["momentum"] == 0.9
    assert dgc.config.optimizer.to_json()["momentum"] == 0.0, "it keeps a momentum of its own"
    assert qadam.config.optimizer.name == "adam" and qadam.grid != ring.grid == dgc.grid
    asked = "optimizer={tuned: {file: rates.yaml, optimizer: {sgd: {nesterov: true, momentum: 0.8}}}}"
    ring, dgc, qadam = searches_of(load(tmp_path, text, asked, tuning=True), seed=1000)
    assert (ring.config.optimizer.options.momentum, ring.config.optimizer.options.nesterov) == (0.8, True)
    assert (dgc.config.optimizer.options.momentum, dgc.config.optimizer.options.nesterov) == (0.0, False)


@pytest.mark.parametrize("seed", [0, 5, 7, 9])
def test_a_seed_that_is_reported_is_refused(tmp_path, seed):
    experiment = load(tmp_path, PLAIN + "seed: 7\nrepeats: 3\n")
    with pytest.raises(ConfigError, match=rf"--seed {seed} .* is one of the seeds .* \(7, 8, 9\)"):
        searches_of(experiment, seed)
    assert searches_of(experiment, 10)


def test_an_arm_that_writes_its_rate_out_beside_others_of_a_table_is_not_searched(tmp_path):
    text = BASE.replace("optimizer: {tuned: rates.yaml}\n", "") + (
        "matrix:\n  algorithm, optimizer: [[ring, {tuned: rates.yaml}], [top-k, {sgd: {lr: 0.1}}]]\n"
    )
    assert [search.arm for search in searches_of(load(tmp_path, text, tuning=True), seed=1000)] == ["ring"]
    written = text.replace("{tuned: rates.yaml}", "{sgd: {lr: 0.1}}")
    found = searches_of(load(tmp_path, written, tuning=True), seed=1000)
    assert [search.arm for search in found] == ["ring", "top-k"], "all where none names a table"


def test_a_method_with_rates_of_its_own_has_its_own_grid(tmp_path):
    text = BASE.replace("rates.yaml}", "{file: rates.yaml, optimizer: {sgd: {}}}}") + (
        "matrix: {algorithm: [ring, demo]}\n"
    )
    ring, demo = searches_of(load(tmp_path, text, tuning=True), seed=1000)
    assert demo.grid[len(demo.grid) // 2] == 0.001 and ring.grid[len(ring.grid) // 2] == 0.05
    assert ring.rates_key != demo.rates_key, "one does not make the other's grid grow"


def test_what_chooses_by_its_link_is_searched_as_it_begins_and_shares_the_search_of_that_setting(tmp_path):
    arms = "matrix: {algorithm: [deco-sgd, {deco-sgd: {ratio: 0.01, staleness: 1}}, {deco-sgd: {staleness: 0}}]}\n"
    (search, other) = searches_of(load(tmp_path, PLAIN + arms), seed=1000)
    assert search.arms == ("deco-sgd(ratio=0.01,staleness=1)", "deco-sgd")
    trained = search.cell(Training(0.1)).config.algorithm.options
    assert (trained.ratio, trained.staleness, trained.adapts) == (0.01, 1, False)
    assert search.config.compute.virtual
    assert other.config.algorithm.options.first.staleness == 0 and not other.config.algorithm.options.adapts


def test_options_of_what_chooses_by_its_link_are_not_tuned(tmp_path):
    arms = "matrix: {algorithm: [deco-sgd, {deco-sgd: {ratio: 0.01, staleness: 1}}]}\ntune: {ratio: [0.01, 0.02]}\n"
    alone, fixed = searches_of(load(tmp_path, BASE + arms, tuning=True), seed=1000)
    assert (alone.options, alone.variants) == ({}, ({},))
    assert fixed.options == {"ratio": [0.01, 0.02]} and len(fixed.variants) == 2
    with pytest.raises(ConfigError, match="no arm here learns otherwise with it"):
        load(tmp_path, BASE + "algorithm: deco-sgd\ntune: {staleness_cost: [0.5, 1]}\n", tuning=True)
