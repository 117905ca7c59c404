"""Role and kinship are what components declare; what is not known is a method of its own."""

from __future__ import annotations

import pytest

from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS
from bwbench.methods import roles
from bwbench.methods.algorithms.every_step import EveryStep
from bwbench.methods.algorithms.single import Single
from bwbench.methods.collectives.gossip import GossipPair
from bwbench.methods.roles import HEADROOM, METHOD, REFERENCE, may_win, needs_no_link, standing_by_name

SAME = "mean of all gradients"


@pytest.fixture(autouse=True)
def _registries(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (ALGORITHMS, COLLECTIVES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))


def test_arms_that_compute_the_same_mean_are_kin() -> None:
    for collective in ("torch", "ring", "parameter-server", "scatter-gather", "all-gather", "hierarchical", "sharded"):
        standing = standing_by_name("every-step", collective, ["none"])
        assert (standing.role, standing.kinship) == (METHOD, SAME)
    for codec in ("fp16", "bf16"):  # half precision is rounding
        assert standing_by_name("every-step", "torch", [codec]).kinship == SAME
    free = standing_by_name("no-communication", "none", ["none"])
    assert (free.role, free.kinship) == (HEADROOM, SAME)


@pytest.mark.parametrize(
    ("algorithm", "collective", "codecs"),
    [
        ("every-step", "ring", ["int8"]),
        ("every-step", "all-gather", ["top-k", "fp16"]),
        ("every-step", "neighbours", ["none"]),
        ("every-step", "all-gather", ["top-k", "int4"]),
        ("local-sgd", "ring", ["none"]),
        ("decentralized", "ring", ["none"]),
    ],
)
def test_what_loses_or_averages_otherwise_is_its_own_kin(algorithm: str, collective: str, codecs: list[str]) -> None:
    standing = standing_by_name(algorithm, collective, codecs)
    assert (standing.role, standing.kinship) == (METHOD, None)


def test_one_node_alone_is_the_reference() -> None:
    standing = standing_by_name("single", "none", ["none"])
    assert standing.role == REFERENCE and standing.kinship != SAME


def test_an_unknown_component_makes_a_method_until_it_is_registered() -> None:
    assert standing_by_name("lone", "none", ["none"]).role == METHOD
    ALGORITHMS.register("lone", type("Lone", (Single,), {}), "one node alone, by another name")
    assert standing_by_name("lone", "none", ["none"]).role == REFERENCE


def test_a_built_in_method_is_known_without_a_look_at_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (ALGORITHMS, COLLECTIVES, COMPRESSIONS):
        monkeypatch.setattr(registry, "_entry_points_read", False)
    monkeypatch.setattr("bwbench.base.registry.entry_points", lambda **_: pytest.fail("entry points were read"))
    roles._declared.cache_clear()
    assert standing_by_name("every-step", "ring", ["fp16"]).role == METHOD
    assert standing_by_name("every-step", "ring", ["none"]).kinship == SAME


def test_a_plugin_declares_as_built_in_components_do() -> None:
    ALGORITHMS.register("own-steps", type("OwnSteps", (EveryStep,), {}), "perhaps not the mean: it does not say so")
    COLLECTIVES.register("own-pairs", type("OwnPairs", (GossipPair,), {"exact": True}), "exact by other means")
    assert standing_by_name("own-steps", "ring", ["none"]).kinship is None
    assert standing_by_name("every-step", "own-pairs", ["none"]).kinship == SAME


def test_who_may_win_and_whom_a_link_concerns() -> None:
    assert [may_win(role) for role in (METHOD, REFERENCE, HEADROOM)] == [True, True, False]
    assert needs_no_link(REFERENCE, shaped=True) and needs_no_link(HEADROOM, shaped=False)
    assert not needs_no_link(HEADROOM, shaped=True) and not needs_no_link(METHOD, shaped=False)
