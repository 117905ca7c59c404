"""The steps that shape an interface, and what its qdiscs must be before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError, LinkError
from bwbench.network.interface import run_state
from bwbench.network.interface.run_state import QdiscSnapshot
from bwbench.network.interface.shaping_request import PeerTraffic
from bwbench.network.interface.steps import (
    INGRESS,
    INGRESS_PARENT,
    ROOT,
    SHAPED,
    UNSHAPED,
    Add,
    Fifo,
    Filter,
    MakeIfb,
    Names,
    Qdisc,
    Step,
    Tbf,
    commands,
    is_root_handle,
    plan,
)
from bwbench.network.link import Link
from bwbench.network.netem.shape import NetemQdisc

NAMES = Names("0123abcd")


def steps(
    both: bool = True, leaf: str | None = None, mtu: int = 1500, ports: tuple[str, ...] = (), **asked: object
) -> list[Step]:
    link = Link.model_validate({"bandwidth": "10 Mbit/s", **asked})
    traffic = PeerTraffic.parse(["10.0.0.2", "fd00::2"], ports)
    return list(plan("eth0", traffic, link, NAMES, mtu=mtu, leaf=leaf, both=both))


def settings(found: list[Step], dev: str, kind: type) -> list[object]:
    qdiscs = [step.what for step in found if isinstance(step, Add) and step.dev == dev and isinstance(step.what, Qdisc)]
    return [qdisc.setting for qdisc in qdiscs if isinstance(qdisc.setting, kind)]


def test_each_direction_has_its_rate_and_queue() -> None:
    found = steps(up="1 Mbit/s", down="20 Mbit/s", bandwidth=None, queue="50 kB")
    assert [tbf.rate_bytes_per_s for tbf in settings(found, "eth0", Tbf)] == [125_000]
    assert [tbf.rate_bytes_per_s for tbf in settings(found, NAMES.ifb, Tbf)] == [2_500_000]
    assert settings(found, "eth0", Fifo) == settings(found, NAMES.ifb, Fifo) == [Fifo(50_000, "bfifo")]


def test_a_queue_of_packets_counts_packets_and_one_of_bytes_holds_a_frame() -> None:
    assert settings(steps(queue="7 packets"), "eth0", Fifo) == [Fifo(7, "pfifo")]
    assert settings(steps(queue="1514 B", mtu=9000), "eth0", Fifo) == [Fifo(9018, "bfifo")]


@pytest.mark.parametrize("mtu", [1500, 9000])
@pytest.mark.parametrize("bandwidth", ["64 kbit/s", "10 Mbit/s", "1 Gbit/s"])
def test_a_burst_passes_a_frame_and_super_packets_are_cut(mtu: int, bandwidth: str) -> None:
    for tbf in settings(steps(mtu=mtu, bandwidth=bandwidth), "eth0", Tbf):
        assert isinstance(tbf, Tbf)
        assert tbf.burst_bytes >= tbf.cut_bytes == 2 * (mtu + 18)


def test_latency_jitter_and_loss_are_whole_in_each_direction_with_chances_of_their_own() -> None:
    found = steps(latency="5 ms", jitter="1 ms", loss=0.01, up="1 Mbit/s")
    (up,), (down,) = settings(found, "eth0", NetemQdisc), settings(found, NAMES.ifb, NetemQdisc)
    assert isinstance(up, NetemQdisc) and isinstance(down, NetemQdisc)
    assert replace(up, seed=None) == replace(down, seed=None)
    assert (up.delay_us, up.jitter_us, up.loss) == (5000, 1000, 0.01)
    assert up.seed != down.seed
    assert settings(steps(), "eth0", NetemQdisc) == []


def test_qdiscs_hang_below_each_other_and_filters_come_last() -> None:
    found = steps(latency="5 ms", leaf="fq_codel")
    assert isinstance(found[0], MakeIfb)
    adds = [step for step in found if isinstance(step, Add)]
    for dev in ("eth0", NAMES.ifb):
        known = {ROOT, INGRESS_PARENT}
        for step in adds:
            if step.dev == dev and not isinstance(step.what, Filter):
                parent = step.what.parent if isinstance(step.what, Qdisc) else step.what.handle & 0xFFFF_0000
                assert parent in known or parent & 0xFFFF_0000 in known
                known.add(step.what.handle)
    filters = [step.what for step in adds if isinstance(step.what, Filter)]
    assert {(one.parent, one.match.version, one.target) for one in filters} == {
        (NAMES.root, 4, NAMES.root | 2),
        (NAMES.root, 6, NAMES.root | 2),
        (INGRESS, 4, NAMES.ifb),
        (INGRESS, 6, NAMES.ifb),
    }
    assert isinstance(adds[-1].what, Filter)
    assert any("fq_codel" in line and f"parent {NAMES.root >> 16:x}:1 " in line for line in commands(found, "eth0"))


def test_what_is_spared_is_asked_first() -> None:
    traffic = PeerTraffic.parse(["10.0.0.2", "fd00::2"], [], ["22", "2222"])
    link = Link.model_validate({"bandwidth": "10 Mbit/s"})
    found = plan("eth0", traffic, link, NAMES, mtu=1500, leaf=None, both=True)
    for parent, unshaped, to_shaped in (
        (NAMES.root, NAMES.root | UNSHAPED, NAMES.root | SHAPED),
        (INGRESS, INGRESS | UNSHAPED, NAMES.ifb),
    ):
        filters = [step.what for step in found if isinstance(step, Add) and isinstance(step.what, Filter)]
        targets = [each.target for each in filters if each.parent == parent]
        assert targets == [unshaped] * (2 * 2 * 4) + [to_shaped] * 2


def test_what_goes_out_alone_leaves_the_ingress_alone() -> None:
    text = "\n".join(commands(steps(both=False), "eth0"))
    assert "ingress" not in text and "ifb" not in text and NAMES.ifb not in text


def test_too_many_filters_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 256"):
        steps(ports=("1-65000", "40000-65001", "7-50000"))


def test_names_are_told_apart() -> None:
    assert len(Names("0" * 8).ifb) <= 15
    assert all(is_root_handle(Names(f"000000{digits:02x}").root) for digits in range(256))
    assert len({Names(f"000000{digits:02x}").root for digits in range(256)}) == 256
    assert Names.of_root(NAMES.root).root == NAMES.root
    assert not is_root_handle(0x1_0000) and not is_root_handle(NAMES.below(1)) and not is_root_handle(0xBBBB_0000)


DEFAULTS = [
    [("noqueue", 0, ROOT, "")],
    [("pfifo_fast", 0, ROOT, "x")],
    [("mq", 0, ROOT, ""), ("fq_codel", 0, 1, "x"), ("fq_codel", 0, 2, "x")],
    [("fq", 0, ROOT, "x")],
]
FOREIGN = [
    [],
    [("fq", 0x8001_0000, ROOT, "x")],
    [("htb", 0x1_0000, ROOT, "x")],
    [("mq", 0x8001_0000, ROOT, ""), ("fq_codel", 0, 1, "x")],
    [("noqueue", 0, ROOT, ""), ("ingress", INGRESS, INGRESS_PARENT, "")],
]


@pytest.fixture(autouse=True)
def _other_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_state, "_DEFAULT_QDISC", Path("/nowhere"))


@pytest.mark.parametrize("qdiscs, leaf", [*zip(DEFAULTS, [None, "pfifo_fast", "fq_codel", "fq"], strict=True)])
def test_the_kernels_own_qdiscs_may_be_replaced(qdiscs: list[tuple[str, int, int, str]], leaf: str | None) -> None:
    found = QdiscSnapshot.of(qdiscs)
    found.refuse_unless_default("eth0", both=True)
    assert found.leaf == leaf


@pytest.mark.parametrize("qdiscs", FOREIGN)
def test_those_of_others_may_not(qdiscs: list[tuple[str, int, int, str]]) -> None:
    with pytest.raises(LinkError, match="eth0"):
        QdiscSnapshot.of(qdiscs).refuse_unless_default("eth0", both=True)


def test_an_ingress_qdisc_matters_only_where_it_is_needed() -> None:
    QdiscSnapshot.of(FOREIGN[-1]).refuse_unless_default("eth0", both=False)


def test_a_default_that_the_kernel_would_not_make_again_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_state, "_DEFAULT_QDISC", tmp_path / "default_qdisc")
    (tmp_path / "default_qdisc").write_text("fq_codel\n")
    for qdiscs in (DEFAULTS[0], DEFAULTS[2]):
        QdiscSnapshot.of(qdiscs).refuse_unless_default("eth0", both=True)
    with pytest.raises(LinkError, match="net.core.default_qdisc"):
        QdiscSnapshot.of(DEFAULTS[1]).refuse_unless_default("eth0", both=True)
