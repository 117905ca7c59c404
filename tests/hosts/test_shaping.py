"""``launcher: ssh`` with a link: the hosts' own kernels shape their interfaces, and have them as before afterwards."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.e2e.program import wait_for
from tests.hosts.lab import SSHD, Lab
from tests.hosts.trials import TORCHRUN, nothing_left, on_host, status, written

pytest.importorskip("asyncssh", reason="the extra [ssh] is not installed")
pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(SSHD is None, reason="there is no sshd (Debian: openssh-server)"),
    pytest.mark.skipif(os.geteuid() != 0, reason="sshd lets others in for root alone"),
    pytest.mark.timeout(400),
]

LINK = {"bandwidth": "20 Mbit/s", "overrides": {2: {"up": "10 Mbit/s"}}}  # rates alone: not every kernel has netem
BACK_S = 20.0  # a lease of 15 s, and some time to take it back


def test_a_link_is_shaped_measured_and_taken_back(four: Lab) -> None:
    before = four.shaping()
    written(four, "shaped", link=LINK, algorithm="parameter-server")  # paced on emulated links
    code, said = four.run("run", "shaped.yaml")
    assert code == 0, said
    assert status(four, "shaped")["status"] == "done"
    (file,) = four.home.glob("results/shaped/*/attempt-1/link.json")
    link: dict[str, Any] = json.loads(file.read_text())
    assert link["backend"] == "interface"
    assert [host["interface"] for host in link["applied"]["hosts"]] == [node.interface for node in four.hosts]
    for when in ("achieved_before", "achieved_after"):
        assert link[when]["verdict"] == "ok", link[when]
        asked = [pair["asked_bps"] for pair in link[when]["pairs"]]
        assert asked == [20e6, 20e6, 10e6, 20e6]
        clocks = link[when]["clocks"]
        assert [one["rank"] for one in clocks] == [1, 2, 3]
        for one in clocks:  # these hosts share one clock, which is not known to them
            assert abs(one["offset_s"]) <= one["uncertainty_s"] < 0.1, one
    code, said = four.run("show", str(file.parents[1].relative_to(four.home)))
    assert code == 0 and "the hosts' clocks were compared to within" in said, said
    assert said.count("applied   ") == 4 and "tc qdisc" not in said, said
    nothing_left(four)
    assert four.shaping() == before


def test_two_hosts_send_to_each_other_at_once(four: Lab) -> None:
    """gloo has one connection for both ways, on which data may keep what asks for data waiting."""
    written(four, "pair", hosts=four.inventory()[:2], link={"bandwidth": "50 Mbit/s"})
    code, said = four.run("run", "pair.yaml")
    assert code == 0, said
    (file,) = four.home.glob("results/pair/*/attempt-1/link.json")
    for pair in json.loads(file.read_text())["achieved_before"]["pairs"]:
        assert pair["achieved_goodput_bps"] == pytest.approx(pair["asked_goodput_bps"], rel=0.3)
    nothing_left(four)


def killed(made: Lab, name: str) -> None:
    """End something while the training of ``name`` runs."""
    if name == "controller":
        return
    module = {"torchrun": TORCHRUN, "keeper": "keep", "shaper": "bwbench.running.launch.ssh.shaper"}[name]
    found = [p for p in on_host(made, 2, module) if (name == "torchrun") == (TORCHRUN in p.cmdline())]
    max(found, key=lambda process: process.create_time()).kill()


@pytest.mark.parametrize(
    ("victim", "said"),
    [
        ("torchrun", "torchrun was killed by SIGKILL"),
        ("keeper", "the keeper of its torchrun was killed"),
        ("shaper", ""),
    ],
)
def test_a_kill_on_a_host_is_named_with_the_host_and_leaves_no_shaping(four: Lab, victim: str, said: str) -> None:
    before = four.shaping()
    written(four, f"cut-{victim}", link=LINK, limit={"samples": 2_000_000})
    process = four.train(f"cut-{victim}.yaml")
    assert all(now != then for now, then in zip(four.shaping(), before, strict=True))
    killed(four, victim)
    assert process.wait(90) == 1, four.messages
    found = status(four, f"cut-{victim}")
    assert found["status"] == "failed" and four.hosts[2].address in found["reason"], found
    assert said in found["reason"], found
    wait_for(lambda: four.shaping() == before, BACK_S, "the interfaces as they were", every_s=0.5)
    nothing_left(four)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_controller_ends_the_shaping(four: Lab, number: signal.Signals) -> None:
    before = four.shaping()
    written(four, f"ended-{number}", link=LINK, limit={"samples": 2_000_000})
    process = four.train(f"ended-{number}.yaml")
    process.send_signal(number)
    process.wait(60)
    limit_s = BACK_S if number == signal.SIGINT else 75.0
    wait_for(lambda: four.shaping() == before, limit_s, "the interfaces as they were", every_s=0.5)
    wait_for(lambda: not four.left() and not four.leftovers(), 75, "the end of everything on the hosts", every_s=0.5)


def test_a_link_among_hosts_without_a_training(four: Lab) -> None:
    before = four.shaping()
    (four.home / "ours.yaml").write_text(json.dumps(four.inventory()))
    code, said = four.run("link", "show", "--hosts", "ours.yaml")
    assert code == 0 and said.count(": nothing of bwbench") == 4, said
    process = four.start("link", "apply", "--hosts", "ours.yaml", "--bandwidth", "20 Mbit/s")
    wait_for(lambda: "until Ctrl-C" in four.said, 60, "the link")
    assert four.said.count("20 Mbit/s") == 4
    mark = four.mark
    code, said = four.run("link", "show", "--hosts", "ours.yaml", "--json")
    assert code == 0 and len([1 for host in json.loads(said) if host["shaped"]]) == 4, said
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0, four.messages[mark:]
    assert "all interfaces are as they were" in four.messages[mark:]
    assert four.shaping() == before


def test_link_apply_names_a_host_whose_connection_breaks(four: Lab) -> None:
    before = four.shaping()
    (four.home / "ours.yaml").write_text(json.dumps(four.inventory()))
    process = four.start("link", "apply", "--hosts", "ours.yaml", "--bandwidth", "20 Mbit/s")
    wait_for(lambda: "until Ctrl-C" in four.said, 60, "the link")
    four.kill_sshd(2)
    try:
        assert process.wait(60) == 3, four.said
        assert f"{four.hosts[2].address}:2222 is no longer shaped" in four.said and "Traceback" not in four.said
        wait_for(lambda: four.shaping() == before, 40, "the interfaces as before", every_s=0.5)
    finally:
        four.start_sshd(2)
        four.await_sshd(2)


def test_clear_on_all_hosts_ends_what_holds_it(four: Lab) -> None:
    before = four.shaping()
    (four.home / "ours.yaml").write_text(json.dumps(four.inventory()))
    process = four.start("link", "apply", "--hosts", "ours.yaml", "--bandwidth", "20 Mbit/s")
    wait_for(lambda: "until Ctrl-C" in four.said, 60, "the link")
    code, said = four.run("link", "clear", "--hosts", "ours.yaml")
    # What held it may take the rest back itself, as soon as it sees that one host is clear.
    assert code == 0 and said.count("removed root qdisc") + said.count("nothing of bwbench") == 4, said
    assert "removed root qdisc" in said
    assert process.wait(30) != 0
    assert "is no longer shaped" in four.messages
    assert four.shaping() == before


def test_what_stands_in_the_way_is_told_and_nothing_starts(four: Lab) -> None:
    node = four.hosts[1]
    assert node.run(["tc", "qdisc", "add", "dev", node.interface, "root", "pfifo"], timeout=20).returncode == 0
    try:
        before = four.shaping()
        written(four, "occupied", link=LINK)
        code, said = four.run("run", "occupied.yaml")
        assert code == 3 and "1 of 4 hosts cannot take part; nothing was started" in said, said
        assert node.address in said and "qdiscs that somebody has set up" in said
        assert four.shaping() == before
    finally:
        node.run(["tc", "qdisc", "del", "dev", node.interface, "root"], timeout=20)
    nothing_left(four)


@pytest.mark.parametrize("number", [0, 2])
def test_a_disk_that_fills_is_told_by_the_host(four: Lab, number: int) -> None:
    before = four.shaping()
    cache = four.folder / f"host{number}" / ".cache"
    cache.mkdir(exist_ok=True)
    four.in_mounts_of(number, "mount", "-t", "tmpfs", "-o", "size=600m", "bwbench-test", str(cache))
    written(four, f"full-{number}", link=LINK, limit={"samples": 2_000_000})
    try:
        process = four.train(f"full-{number}.yaml")
        four.in_mounts_of(number, "sh", "-c", f"cat /dev/zero > {cache}/filler; true")
        assert process.wait(90) == 1, four.messages
        found = status(four, f"full-{number}")
        assert found["status"] == "failed", found
        assert f"{four.hosts[number].address}:2222: its disk is full" in found["reason"], found
        wait_for(lambda: four.shaping() == before, BACK_S, "the interfaces as they were", every_s=0.5)
        nothing_left(four)
    finally:
        if four.started is not None:
            four.started.kill()
        wait_for(lambda: not four.left(), 60, "the end of everything on the hosts", every_s=0.5)
        four.in_mounts_of(number, "umount", str(cache))
