"""``link`` of ``distribute``: what is understood, and how ranks of one host share its way to the others."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import torch

from bwbench import distribute
from bwbench.base.errors import ConfigError
from bwbench.base.registry import COLLECTIVES
from bwbench.methods.collectives.pacing import SHARE_OF_DATA, Ends
from bwbench.network.link.frame_sizes import FullFrame
from bwbench.training.library import link_pacing
from bwbench.training.library.link_pacing import AskedLink, pace_hosts, read_link
from tests.unit.training.library.together import batch, loss_of, small_model, together


def test_a_rate_or_a_word() -> None:
    assert read_link("200 Mbit/s") == AskedLink("200 Mbit/s", 2e8)
    assert read_link("measured") == AskedLink("measured") and read_link("unpaced") == AskedLink("unpaced")


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("mesured", "Did you mean 'measured'"),
        ("200", "has no unit; .*write a rate such as '200 Mbit/s'"),
        (200, "has no unit"),
        (None, "write a rate"),
        ("1 bit/s", "out of range"),
    ],
)
def test_mistakes(link: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_link(link)
    with pytest.raises(ConfigError, match=said):
        model = small_model()
        distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), "ring", link=link)


TWO_HOSTS = ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("collective", "flows"),
    [
        ({"ring": {}}, [0, 1, 0, 1]),  # the last rank of a host alone sends to another one
        ({"ring": {"paced": False}}, [0, 0, 0, 0]),
        ({"scatter-gather": {}}, [2, 2, 2, 2]),
        ({"all-gather": {}}, [2, 2, 2, 2]),
        ({"gossip-pair": {}}, [1, 1, 1, 1]),
        ({"hierarchical": {"workers_per_host": 2}}, [1, 0, 1, 0]),
        ({"hierarchical": {"sites": [1, 1, 2]}}, [0, 1, 1, 0]),  # leaders 0, 1 and 2, of which 1 is beside 0
        ({"sharded": {"workers_per_host": 2}}, [1, 1, 1, 1]),
        ({"sharded": {"workers_per_host": 4}}, [0, 0, 0, 0]),
        ({"torch": {}}, [0, 0, 0, 0]),
    ],
)
def test_connections_between_hosts_that_are_in_use_at_a_time(collective: dict[str, Any], flows: list[int]) -> None:
    ((name, options),) = collective.items()
    kind = COLLECTIVES.load(name)
    ours = kind(kind.Config(**options))
    assert [ours.flows_across(place, TWO_HOSTS) for place in range(4)] == flows
    assert ours.flows_across(0, ["a"] * 4) == 0, "nothing leaves the host"


class FourRanks:
    """Groups of four processes that have told one another of their connections already."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, own: int = 1) -> None:
        between = {(i, j): Ends(f"10.0.0.{i}", 1000 + j, f"10.0.0.{j}", 1000 + i) for i in range(4) for j in range(4)}
        self.ends = [[between[i, j] for j in range(4) if j != i] for i in range(4)]
        self.ends[own].append(Ends("10.0.0.1", 5, "192.168.7.7", 443))  # of the user's own program
        self.crossing = {between[own, j] for j in range(4) if TWO_HOSTS[j] != TWO_HOSTS[own]}
        self.data = self.control = self
        self.paced: list[tuple[set[Ends], float | None]] = []
        told = [json.loads(json.dumps([host, ends])) for host, ends in zip(TWO_HOSTS, self.ends, strict=True)]
        monkeypatch.setattr(link_pacing, "_this_host", lambda: TWO_HOSTS[own])
        monkeypatch.setattr(link_pacing, "own_connections", lambda: self.ends[own])
        monkeypatch.setattr(link_pacing, "told_by_all", lambda own, group: told)
        monkeypatch.setattr(link_pacing, "pace_connections", self._pace)

    def size(self) -> int:
        return 4

    def _pace(self, chosen: set[Ends], payload_bps: float | None) -> int:
        self.paced.append((chosen, payload_bps))
        return len(chosen)


def test_ranks_of_a_host_share_its_rate_and_other_connections_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: Any = FourRanks(monkeypatch)
    note, lift = pace_hosts(read_link("100 Mbit/s"), groups, COLLECTIVES.load("scatter-gather")())
    ((chosen, rate),) = groups.paced
    assert chosen == groups.crossing
    assert rate == pytest.approx(SHARE_OF_DATA * 100e6 / FullFrame().wire_per_payload / 4)
    assert note.startswith("link: 2 connections to other hosts send at most 23.6 Mbit/s each")
    lift()
    assert groups.paced[1:] == [(groups.crossing, None)]


def test_a_method_that_cannot_be_paced_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: Any = FourRanks(monkeypatch)
    with pytest.warns(UserWarning, match="link '1 Mbit/s' changes nothing here: TorchDdp"):
        pace_hosts(read_link("1 Mbit/s"), groups, COLLECTIVES.load("torch")())
    assert not groups.paced


def test_ranks_of_one_host_have_nothing_to_pace_and_train_as_before(caplog: pytest.LogCaptureFixture) -> None:
    def work(rank: int, link: str) -> torch.Tensor:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with distribute(model, optimizer, "ring", link=link):
            loss_of(model, batch(rank, 0)).backward()
            optimizer.step()
        return next(model.parameters()).detach().clone()

    with caplog.at_level(logging.INFO, logger="bwbench"):
        paced = together(2, lambda rank: work(rank, "10 Mbit/s"))
    assert "all ranks are on one host" in caplog.text
    assert torch.equal(paced[0], together(2, lambda rank: work(rank, "unpaced"))[0])


def test_ranks_that_say_different_links_hear_of_it() -> None:
    def work(rank: int) -> str:
        model = small_model()
        with pytest.raises(ConfigError) as found:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            distribute(model, optimizer, "ring", link="measured" if rank else "unpaced")
        return str(found.value)

    assert "rank 1: link has asked 'measured', rank 0 has 'unpaced'" in together(2, work)[0]
