"""``bwbench link apply`` and ``clear`` on an interface of a machine made of namespaces."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator

import pytest

from tests.netns.interface_lab import HERE, OTHER, OTHER_6, OTHER_PORT, PEER, PEER_6, PORT, Machine, applying, wait_for

pytestmark = [pytest.mark.netns]

RATE_BPS = 8e6 * 1448 / 1514
FAST_BPS = 4 * RATE_BPS
SHOW_WAN1 = ("tc", "qdisc", "show", "dev", "wan1")


@pytest.fixture(scope="module")
def lab() -> Iterator[Machine]:
    with Machine() as machine:
        yield machine


@pytest.fixture
def machine(lab: Machine) -> Iterator[Machine]:
    """The machine; the test has to leave it as it found it."""
    before = lab.state()
    yield lab
    lab.clear()
    assert wait_for(lambda: lab.state() == before), lab.state()


def refused(machine: Machine, *words: str, code: int = 3, **environment: str) -> str:
    """The message of an apply that is refused and changes nothing."""
    before = machine.state()
    result = machine.run(*applying(*words), **environment)
    assert (result.returncode, result.stdout) == (code, "")
    assert "Traceback" not in result.stderr
    assert machine.state() == before
    return result.stderr


def shaped(machine: Machine, address: str, port: int = PORT) -> dict[str, bool]:
    """Whether each direction has the rate that was asked; fails where it has neither that nor much more."""
    found = {}
    for way in ("up", "down"):
        rate_bps = machine.rate_bps(way, address, port)
        found[way] = rate_bps < FAST_BPS
        assert not found[way] or rate_bps == pytest.approx(RATE_BPS, rel=0.2)
    return found


def test_the_peers_are_shaped_both_ways_and_nobody_else(machine: Machine) -> None:
    printed = machine.apply("--peer", PEER_6)
    assert f"traffic    {PEER}, {PEER_6} (everything)\n" in printed
    assert "coming in  8 Mbit/s, queue 64 kB\n" in printed
    for address in (PEER, PEER_6):
        assert shaped(machine, address) == {"up": True, "down": True}
    for address in (OTHER, OTHER_6):
        assert shaped(machine, address) == {"up": False, "down": False}


def test_directions_have_rates_of_their_own(machine: Machine) -> None:
    machine.output_of(*applying("--up", "2 Mbit/s", rate="30 Mbit/s"))
    assert machine.rate_bps("up", size=200_000) == pytest.approx(2e6 * 1448 / 1514, rel=0.2)
    assert machine.rate_bps("down") == pytest.approx(30e6 * 1448 / 1514, rel=0.2)


def test_ports_and_what_goes_out_alone(machine: Machine) -> None:
    machine.apply("--peer", PEER_6, "--port", f"{PORT - 1}-{PORT + 2}", "--only-up")
    assert shaped(machine, PEER) == shaped(machine, PEER_6) == {"up": True, "down": False}
    assert shaped(machine, PEER, OTHER_PORT) == shaped(machine, PEER_6, OTHER_PORT) == {"up": False, "down": False}


def test_ports_that_are_left_alone(machine: Machine) -> None:
    printed = machine.apply("--peer", PEER_6, "--except-port", f"{OTHER_PORT - 1}-{OTHER_PORT}")
    assert f"(everything but ports {OTHER_PORT - 1}-{OTHER_PORT})" in printed
    for address in (PEER, PEER_6):
        assert shaped(machine, address) == {"up": True, "down": True}
        assert shaped(machine, address, OTHER_PORT) == {"up": False, "down": False}


def test_a_dry_run_changes_nothing_and_its_commands_make_the_same(machine: Machine) -> None:
    words = ("--peer", PEER_6, "--port", "5000-5006", "--except-port", "22", "--queue", "100 packets")
    before = machine.state()
    lines = machine.output_of(*applying(*words, "--dry-run")).splitlines()
    assert machine.state() == before
    machine.output_of("sh", "-ec", "\n".join(lines))
    by_tc = made(machine)
    undo = lines[-1].partition("goes with: ")[2]
    machine.output_of("sh", "-ec", undo)
    assert machine.state() == before
    machine.apply(*words)
    assert made(machine) == by_tc


def made(machine: Machine) -> list[str]:
    """Qdiscs, classes and filters as tc shows them, without the numbers and names that belong to a run."""
    shows = ("qdisc show", "-d class show dev wan0", "filter show dev wan0", "filter show dev wan0 ingress")
    text = "\n".join(machine.output_of("tc", *show.split()) for show in shows)
    root = next(line.split()[2] for line in text.splitlines() if line.startswith("qdisc htb"))
    ifb = next(word for word in text.split() if word.startswith("bw-"))
    text = text.replace(ifb.rstrip(")"), "IFB").replace(root[:-2], "ROOT")
    return sorted(line for line in text.splitlines() if not line.strip().startswith("index"))  # of an action


def test_clear_says_what_it_removes_and_may_be_repeated(machine: Machine) -> None:
    before = machine.state()
    run = json.loads(machine.apply("--json"))["run"]
    removed = machine.clear()
    assert f"interface bw-{run}" in removed and "ingress qdisc of wan0" in removed
    assert wait_for(lambda: machine.state() == before)
    assert machine.clear() == []
    assert "nothing of bwbench on wan0" in machine.output_of("bwbench", "link", "clear", "--dev", "wan0")


@pytest.mark.parametrize("words", [(), ("--only-up",)])
def test_clear_knows_a_run_whose_state_is_lost(machine: Machine, words: tuple[str, ...]) -> None:
    before = machine.state()
    machine.apply(*words)
    for pid in machine.reverts():
        machine.output_of("kill", "-KILL", str(pid))
    machine.output_of("sh", "-c", "rm /run/bwbench/*")
    assert "link clear" in refused(machine)
    assert machine.clear() != []
    assert machine.state() == before


def test_clear_leaves_what_others_have_added(machine: Machine) -> None:
    machine.apply()
    machine.output_of(*"tc filter add dev wan0 parent ffff: protocol ip prio 7 u32 match u32 0 0 classid 1:1".split())
    result = machine.run("bwbench", "link", "clear", "--dev", "wan0")
    assert result.returncode == 3
    assert "somebody else has changed them" in result.stderr
    assert "pref 7" in machine.output_of("tc", "filter", "show", "dev", "wan0", "ingress")
    machine.output_of("tc", "qdisc", "del", "dev", "wan0", "ingress")


def test_a_second_run_on_the_interface_is_refused(machine: Machine) -> None:
    machine.apply()
    assert "link clear --dev wan0" in refused(machine)


def test_of_two_at_the_same_time_one_is_refused(machine: Machine) -> None:
    both = [machine.start(*applying("--json")) for _ in range(2)]
    outputs = [process.communicate(timeout=30) for process in both]
    assert sorted(process.returncode for process in both) == [0, 3]
    (run,) = [json.loads(output)["run"] for output, _ in outputs if output]
    (message,) = [errors for _, errors in outputs if errors]
    assert "wan0" in message
    assert f"bw-{run}:" in machine.state()["interfaces"]


@pytest.mark.parametrize("queues, root", [(1, "pfifo_fast"), (2, "mq")])
def test_the_kernels_own_qdiscs_come_back_and_serve_the_others_meanwhile(
    machine: Machine, queues: int, root: str
) -> None:
    machine.output_of(*f"ip link add wan1 numtxqueues {queues} type ifb".split())
    try:
        machine.output_of("ip", "link", "set", "wan1", "up")
        before = machine.output_of("tc", "qdisc", "show", "dev", "wan1")
        if "pfifo_fast" not in before:
            pytest.skip(f"the default qdisc of this kernel is another: {before}")
        assert f"qdisc {root} 0: root" in before
        machine.apply(dev="wan1")
        (leaf,) = [line for line in machine.output_of(*SHOW_WAN1).splitlines() if "pfifo_fast" in line]
        assert re.search(r"parent b..0:1 ", leaf)
        machine.clear("wan1")
        assert machine.output_of(*SHOW_WAN1) == before
    finally:
        machine.output_of("ip", "link", "del", "wan1")


@pytest.mark.parametrize("place, words", [("root", "tbf rate 1mbit burst 3000 limit 9000"), ("ingress", "")])
def test_qdiscs_of_others_are_left_alone(machine: Machine, place: str, words: str) -> None:
    machine.output_of("tc", "qdisc", "add", "dev", "wan0", place, *words.split())
    try:
        assert place in refused(machine)
        if place == "ingress":
            machine.apply("--only-up")
            machine.clear()
            assert "ingress" in machine.output_of("tc", "qdisc", "show", "dev", "wan0")
    finally:
        machine.output_of("tc", "qdisc", "del", "dev", "wan0", place)


def test_the_connection_to_the_controller_is_never_shaped(machine: Machine) -> None:
    environment = {"SSH_CONNECTION": f"{PEER} 50022 {HERE} 22"}
    assert "--port" in refused(machine, code=2, **environment)
    assert "50022" in refused(machine, "--port", "50000-51000", code=2, **environment)
    machine.apply("--port", str(PORT), **environment)
    machine.clear()
    machine.apply("--except-port", "22", **environment)


def test_ssh_servers_are_looked_at_where_the_environment_says_nothing(machine: Machine) -> None:
    code = (
        "import socket, time; from bwbench.network.namespaces import isolation as own; own.set_process_name('sshd');"
        f"c = socket.create_connection(('{PEER}', {PORT})); print('on', flush=True); time.sleep(30)"
    )
    with machine.start("python", "-c", code) as server:
        assert server.stdout is not None and server.stdout.readline() == "on\n"
        assert "sshd" in refused(machine, code=2)
        machine.kill(server)


@pytest.mark.parametrize(
    "words, message",
    [
        (("--peer", HERE), "that is wan0 itself"),
        (("--peer", "10.9.0.7/24"), "10.9.0.0/24"),
        (("--dev", "wan1"), "There are: lo, wan0"),
        (("--dev", "../wan0"), "There are: lo, wan0"),
        (("--for", "2 days"), "--for"),
        (("--medium", "shared"), "--medium"),
        (("--port", "1-65000", "--peer", "10.8.0.0/16", "--peer", "10.7.0.0/16"), "filters"),
    ],
)
def test_wrong_input_is_exit_2(machine: Machine, words: tuple[str, ...], message: str) -> None:
    assert message in refused(machine, *words, code=2)


def test_an_interface_that_is_down_is_refused(machine: Machine) -> None:
    machine.output_of("ip", "link", "set", "wan0", "down")
    try:
        assert "down" in refused(machine)
    finally:
        machine.output_of("ip", "link", "set", "wan0", "up")


def test_without_rights_the_line_with_sudo_is_shown(machine: Machine) -> None:
    program = (sys.executable, "-m", "bwbench.cli.main", *applying()[1:])
    weak = ("setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin")
    result = machine.run(*weak, *program)
    assert result.returncode == 3
    assert "sudo " in result.stderr and "--peer" in result.stderr
    assert "tc qdisc add" in machine.output_of(*weak, *program, "--dry-run")
