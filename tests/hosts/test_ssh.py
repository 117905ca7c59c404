"""``launcher: ssh`` on four hosts, each a namespace with its own sshd, interface and home."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.program import run, status_of
from tests.hosts.lab import PORT, SSHD, Lab
from tests.hosts.trials import CONTENT, TORCHRUN, nothing_left, on_host, status, written

pytest.importorskip("asyncssh", reason="the extra [ssh] is not installed")
pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(SSHD is None, reason="there is no sshd (Debian: openssh-server)"),
    pytest.mark.skipif(os.geteuid() != 0, reason="sshd lets others in for root alone"),
    pytest.mark.timeout(400),
]


def test_from_preflight_to_figures(four: Lab, tmp_path: Path) -> None:
    written(four)
    code, said = four.run("run", "tiny.yaml")
    assert code == 0, said
    found = status(four, "tiny")
    assert found["status"] == "done" and found["replicas_identical"] is True
    (attempt,) = four.home.glob("results/tiny/*/attempt-1")
    names = {file.name for file in attempt.iterdir()}
    assert {"environment.json", "link.json", *(f"rank{r}.jsonl" for r in range(4))} <= names
    assert {f"host{number}.log" for number in range(4)} & names
    environment = json.loads((attempt / "environment.json").read_text())
    assert [host["address"] for host in environment["hosts"]] == [node.address for node in four.hosts]
    cell = (attempt.parent / "cell.json").read_text()
    assert four.hosts[0].address not in cell and '"ssh"' in cell
    nothing_left(four)
    (tmp_path / "tiny.yaml").write_text(json.dumps({**CONTENT, "nodes": 4, "launcher": "local"}))
    assert run("run", "tiny.yaml", cwd=tmp_path).returncode == 0
    local = status_of(tmp_path / "results")["ring-fp16"]
    for same in ("samples", "final_metric", "test_metric", "payload_bytes"):
        assert found[same] == local[same], same
    for command in (("plot", "results/tiny"), ("report", "results/tiny")):
        code, said = four.run(*command)
        assert code == 0, said


def listens_at(four: Lab, number: int) -> set[str]:
    """Addresses at which a host listens, but for its sshd."""
    said = four.hosts[number].run(["ss", "-ltnH"], capture_output=True, text=True, timeout=20, check=True).stdout
    places = [line.split()[3].rpartition(":") for line in said.splitlines()]
    return {address for address, _, port in places if int(port) != PORT}


def test_it_listens_on_its_network_alone_and_ctrl_c_ends_everything_everywhere(four: Lab) -> None:
    written(four, "stopped", limit={"samples": 2_000_000})
    process = four.train("stopped.yaml")
    for number, host in enumerate(four.hosts):
        assert listens_at(four, number) == {host.address}
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, four.messages
    assert status(four, "stopped")["status"] == "interrupted"
    assert not list(four.home.glob("results/stopped/*/*/received-*"))
    nothing_left(four)


def test_a_rank_that_is_killed_on_a_host_is_named(four: Lab) -> None:
    """What else may be killed there, and the controller, is killed in test_shaping.py, where there is more to undo."""
    written(four, "killed", limit={"samples": 2_000_000})
    process = four.train("killed.yaml")
    victims = [p for p in on_host(four, 2, "bwbench.training.loop.worker") if TORCHRUN not in p.cmdline()]
    max(victims, key=lambda p: p.create_time()).kill()
    assert process.wait(90) == 1, four.messages
    found = status(four, "killed")
    assert found["status"] == "failed" and "rank 2" in found["reason"], found["reason"]
    nothing_left(four)


def test_what_is_missing_is_told_for_every_host_and_nothing_starts(four: Lab) -> None:
    hosts = four.inventory()
    hosts[1]["python"] = "/no/such/python"
    hosts[2]["port"] = 9
    hosts[3]["interface"] = "wlan7"
    written(four, "unfit", hosts=hosts)
    code, said = four.run("run", "unfit.yaml")
    assert code == 3 and "3 of 4 hosts cannot take part; nothing was started" in said, said
    for number, text in (
        (1, "there is no '/no/such/python'"),
        (2, "does not get through"),
        (3, "no interface 'wlan7'"),
    ):
        (line,) = [line for line in said.splitlines() if text in line]
        assert four.hosts[number].address in line
    assert not list(four.home.glob("results/unfit/*/attempt-*"))
    nothing_left(four)


def test_an_unknown_host_key_and_a_key_that_does_not_fit_are_refused(four: Lab) -> None:
    written(four, "keys")
    ssh = four.home / ".ssh"
    known, key = (ssh / "known_hosts").read_text(), (ssh / "id_ed25519").read_bytes()
    try:
        (ssh / "known_hosts").write_text("".join(known.splitlines(keepends=True)[1:]))
        code, said = four.run("run", "keys.yaml")
        assert code == 3 and "known_hosts" in said and "ssh " in said
        (ssh / "known_hosts").write_text(known)
        (ssh / "id_ed25519").unlink()
        code, said = four.run("run", "keys.yaml")
        assert code == 3 and said.count("no key of yours opens it") == 4, said
    finally:
        (ssh / "known_hosts").write_text(known)
        (ssh / "id_ed25519").write_bytes(key)
        (ssh / "id_ed25519").chmod(0o600)
