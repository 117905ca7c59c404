"""Every registered algorithm keeps the contract: trains, ends cleanly, sends what it claims, keeps its promises."""

from __future__ import annotations

from functools import cache

import pytest

from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.methods.algorithms.algorithm_contract import collective_for, violations
from bwbench.methods.algorithms.buckets import RunningLocally
from bwbench.methods.algorithms.every_step import EveryStep
from bwbench.methods.algorithms.single import Single

# Options under which something happens in so few steps; those that an algorithm has not are left out.
SHORT = {"period": 4, "overlap": 0, "fragments": 2, "warmup": 0}
OPTIONS = {
    "streaming-diloco": {"period": 4, "overlap": 2, "fragments": 2},
    "sparta": {"period": 1, "overlap": 0, "ratio": 0.5},
    "des-loc": {"period": 2},
    "deco-sgd": {"ratio": 1.0, "staleness": 2},  # nothing to choose, and a size that no gradient decides
}
TIMED = {"async"}  # how often they exchange depends on the clock, and so do their results


def options_of(name):
    config = ALGORITHMS.load(name).Config
    known = {field.alias or key for key, field in config.model_fields.items()} | set(config.model_fields)
    return config(**{key: value for key, value in (SHORT | OPTIONS.get(name, {})).items() if key in known})


@cache
def collective_of(name):
    return collective_for(ALGORITHMS.load(name))


def fits(name, num_nodes):
    if (num_nodes == 1) == ALGORITHMS.load(name).needs_peers:
        return False
    return COLLECTIVES.load(collective_of(name))().check(num_nodes) is None


# hivemind runs processes of its own, which find each other through a network: tests/e2e/test_hivemind.py.
NAMES = [name for name in ALGORITHMS.names() if collective_of(name) is not None and name != "hivemind"]
SIZES = [(name, num_nodes) for name in NAMES for num_nodes in (1, 2, 3, 4, 5) if fits(name, num_nodes)]


def test_only_torchs_own_are_left_out():
    left_out = set(ALGORITHMS.names()) - set(NAMES) - {"hivemind"}
    assert all(ALGORITHMS.load(name).accepts(COLLECTIVES.load("torch")) is None for name in left_out)


@pytest.mark.parametrize(("name", "num_nodes"), SIZES)
def test_algorithm_keeps_the_contract(name, num_nodes):
    def make():
        return ALGORITHMS.load(name)(options_of(name))

    assert violations(make, num_nodes, timed=name in TIMED) == []


class Apart(Single):
    """Wrong: claims an agreement after every step, and never agrees."""

    needs_peers = True

    def attach(self, context):
        return RunningLocally(context)


class Silent(EveryStep):
    """Wrong: claims to send half of what it does."""

    def traffic(self, parameter_shapes, num_nodes, collective, make_codec):
        return super().traffic(parameter_shapes, num_nodes, collective, make_codec).scaled(0.5)


@pytest.mark.parametrize(("make", "finding"), [(Apart, "replicas differ after step 1"), (Silent, "traffic claims")])
def test_the_contract_finds_what_is_wrong(make, finding):
    assert any(finding in text for text in violations(make, 2))


def test_the_contract_says_what_it_cannot_ask():
    assert "needs_peers" in violations(Single, 2)[0]
