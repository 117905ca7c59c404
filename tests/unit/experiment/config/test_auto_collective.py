from __future__ import annotations

from typing import ClassVar

import pytest

from bwbench.base.errors import ConfigError
from bwbench.base.registry import ALGORITHMS, COMPRESSIONS
from bwbench.experiment.config import load_experiment
from bwbench.experiment.config.auto_collective import auto_collective
from bwbench.experiment.config.component_parsing import parse_chain, parse_component
from bwbench.methods.algorithms.every_step import EveryStep
from bwbench.methods.compression.codec import AbstractCodec


class Dense(AbstractCodec):
    """A quarter of fp32, not to be added up."""

    sums_on_ring = False

    def payload_bytes(self, num_elements):
        return num_elements

    def encode(self, x):
        raise NotImplementedError

    def decode(self, payload, num_elements):
        raise NotImplementedError


class ForNeighbours(EveryStep):
    averages_partially = True
    preferred_collective: ClassVar[str | None] = "neighbours"


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for registry in (ALGORITHMS, COMPRESSIONS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    COMPRESSIONS.register("a-dense-one", Dense, "for this test")
    ALGORITHMS.register("for-neighbours", ForNeighbours, "for this test")


def choose(compression, nodes, algorithm="every-step"):
    return auto_collective(parse_component(algorithm, ALGORITHMS), parse_chain(compression), nodes)


@pytest.mark.parametrize("compression", ["none", "fp16"])
@pytest.mark.parametrize("nodes", [1, 2, 4, 64])
def test_payloads_that_add_up_take_the_ring(compression, nodes):
    name, reason = choose(compression, nodes)
    assert name == "ring" and "added" in reason


@pytest.mark.parametrize(("nodes", "expected"), [(2, "all-gather"), (3, "scatter-gather"), (8, "scatter-gather")])
def test_dense_payloads_are_averaged_by_owners_from_three_nodes_on(nodes, expected):
    name, reason = choose("a-dense-one", nodes)
    assert name == expected and "% of the fp32 tensor" in reason


@pytest.mark.parametrize(("nodes", "expected"), [(2, "all-gather"), (8, "all-gather"), (1000, "scatter-gather")])
def test_sparse_payloads_travel_unmerged_until_nodes_are_many(nodes, expected):
    name, reason = choose("threshold", nodes)
    assert name == expected and "sparse no more" in reason


def test_the_numbers_are_those_of_the_formulas():
    _, reason = choose("a-dense-one", 5)
    assert "all-gather" in reason and "100 %" in reason  # 4 payloads of a quarter
    assert "40 % with scatter-gather" in reason  # 2 * 4/5 of a quarter


def test_an_algorithm_may_prefer_one_and_a_codec_may_overrule_it():
    assert choose("fp16", 4, "for-neighbours")[0] == "neighbours"
    ForNeighbours.preferred_collective = "ring"
    try:
        assert choose("a-dense-one", 4, "for-neighbours")[0] == "scatter-gather"
    finally:
        ForNeighbours.preferred_collective = "neighbours"


def test_gossip_among_an_odd_number_is_refused_before_anything_runs(tmp_path):
    experiment = tmp_path / "odd.yaml"
    text = "name: odd\nnodes: {}\nlink: unshaped\nmodel: mlp\ndataset: digits\nalgorithm: decentralized-shift-one\n"
    experiment.write_text(text.format(3) + "limit: {samples: 1000}\n")
    with pytest.raises(ConfigError, match="even number of nodes.*3 is odd"):
        load_experiment(experiment)
    experiment.write_text(text.format(4) + "limit: {samples: 1000}\n")
    load_experiment(experiment)
