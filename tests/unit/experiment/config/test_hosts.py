"""``hosts:`` forms that are taken, and a great many that are refused before anything is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config.hosts import Host, inventory
from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.plan.cell import build_plan

BASE = """name: study
link: unshaped
model: logistic
launcher: ssh
"""


def load(folder: Path, hosts: str, base: str = BASE) -> tuple[Host, ...]:
    (folder / "study.yaml").write_text(f"{base}hosts: {hosts}\n")
    experiment = load_experiment(folder / "study.yaml")
    (point,) = experiment.points
    return point.config.hosts


@pytest.mark.parametrize(
    "text, expected",
    [
        ("192.168.1.10", {"address": "192.168.1.10"}),
        ("anna@laptop.local", {"user": "anna", "address": "laptop.local"}),
        ("anna@laptop.local:2222", {"user": "anna", "address": "laptop.local", "port": 2222}),
        ("'[fe80::1]:22'", {"address": "fe80::1", "port": 22}),
        ("node_7", {"address": "node_7"}),
    ],
)
def test_a_host_in_short(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    assert load(tmp_path, f"[{text}, other.example]")[0] == Host(**expected)


def test_nodes_are_the_workers_of_all_hosts(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(f"{BASE}hosts: [a, {{address: b, workers: 3}}]\n")
    (point,) = load_experiment(tmp_path / "study.yaml").points
    assert point.config.nodes == 4


def test_ranks_on_each_host_are_said_once_for_all(tmp_path: Path) -> None:
    found = load(tmp_path, "[a, {address: b, workers: 3}]", f"{BASE}per_host: 4\n")
    assert [host.workers for host in found] == [4, 3]
    (point,) = load_experiment(tmp_path / "study.yaml").points
    assert point.config.nodes == 7


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (BASE + "per_host: 0\n", "per_host: 0 is out of range: 1 to 64"),
        (BASE + "per_host: two\n", "per_host: 'two' is not a whole number"),
        (BASE.replace("link: unshaped", "link: {bandwidth: 10 Mbit/s}") + "per_host: 2\n", "a has 2 workers"),
    ],
)
def test_ranks_on_each_host_that_cannot_be(tmp_path: Path, base: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, "[a, b]", base)


def test_ranks_on_each_host_without_hosts_are_refused(tmp_path: Path) -> None:
    base = BASE.replace("launcher: ssh", "launcher: external\nnodes: 4\nper_host: 2")
    (tmp_path / "study.yaml").write_text(base)
    with pytest.raises(ConfigError, match="study.yaml:6: per_host is for launcher: ssh.*launch-script --per-host"):
        load_experiment(tmp_path / "study.yaml")


SHAPED = BASE.replace("link: unshaped", "link: {LINK}")


@pytest.mark.parametrize(
    "link, hosts, said",
    [
        ("{bandwidth: 10 Mbit/s, medium: shared}", "[a, b]", "link.medium: launcher 'ssh'"),
        ("{bandwidth: 10 Mbit/s, outages: [{at: 1 s, duration: 1 s}]}", "[a, b]", "link.outages: launcher 'ssh'"),
        ("{bandwidth: 10 Mbit/s, backend: relay}", "[a, b]", "link.backend: launcher 'ssh'"),
        ("{bandwidth: 10 Mbit/s, jitter: 1 ms}", "[a, b]", "add 'jitter_kind: independent'"),
        ("{bandwidth: 10 Mbit/s, jitter: 1 ms, backend: netem}", "[a, b]", "'jitter_kind: independent' asks"),
        ("{bandwidth: 10 Mbit/s, tcp: {congestion_control: reno}}", "[a, b]", "link.tcp: launcher 'ssh'"),
        ("{bandwidth: 10 Mbit/s, mtu: 9000}", "[a, b]", "link.mtu: under launcher 'ssh'"),
        ("{bandwidth: 10 Mbit/s}", "[a, {address: b, workers: 2}]", "b has 2 workers"),
    ],
)
def test_what_hosts_cannot_shape(tmp_path: Path, link: str, hosts: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, hosts, SHAPED.replace("{LINK}", link))
    assert said in str(caught.value) and "study.yaml:" in str(caught.value)


def test_launcher_external_shapes_nothing(tmp_path: Path) -> None:
    text = SHAPED.replace("{LINK}", "{bandwidth: 10 Mbit/s}").replace("launcher: ssh", "launcher: external")
    (tmp_path / "study.yaml").write_text(f"{text}nodes: 2\n")
    with pytest.raises(ConfigError, match="write 'link: unshaped', or have launcher: ssh"):
        load_experiment(tmp_path / "study.yaml")


def test_hosts_may_be_shaped(tmp_path: Path) -> None:
    link = "{bandwidth: 10 Mbit/s, latency: 5 ms, loss: 0.01, overrides: {1: {up: 1 Mbit/s}}}"
    assert len(load(tmp_path, "[a, b]", SHAPED.replace("{LINK}", link))) == 2


def test_an_inventory_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    for text in ("[anna@a, b]", "hosts: [anna@a, b]", BASE + "hosts: [anna@a, b]"):
        file.write_text(text)
        assert [host.name for host in inventory(file)] == ["anna@a", "b"]
    file.write_text("- a\n- '-oProxyCommand=x'\n")
    with pytest.raises(ConfigError, match=r"ours\.yaml:2"):
        inventory(file)


def test_an_inventory_is_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("hosts:\n  - anna@a\n  - {address: b, python: /opt/venv/bin/python}\n")
    assert [host.name for host in load(tmp_path, "ours.yaml")] == ["anna@a", "b"]


def test_hosts_are_no_part_of_identity_and_are_never_written(tmp_path: Path) -> None:
    ids = set()
    for hosts in ("[a, b]", "[c, d]"):
        (tmp_path / "study.yaml").write_text(f"{BASE}hosts: {hosts}\n")
        (cell,) = build_plan(load_experiment(tmp_path / "study.yaml")).cells
        ids.add(cell.id)
        assert "hosts" not in cell.to_json()["config"]
    assert len(ids) == 1


HOSTILE = [
    "'; rm -rf ~'",
    "'a; touch stolen'",
    "'$(touch stolen)'",
    "'`touch stolen`'",
    "'a b'",
    "'a|b'",
    "'a&b'",
    "'a>b'",
    "'a\\b'",
    '"a\\nb"',
    '"a\\tb"',
    '"a\\0b"',
    "'-oProxyCommand=touch stolen'",
    "'-oProxyCommand=x'",
    "'-h'",
    "'--'",
    "'anna@-oProxyCommand=x'",
    "'-l@host'",
    "'anna;x@host'",
    "'an na@host'",
    "'$USER@host'",
    "'@host'",
    "'anna@'",
    "''",
    "'host:'",
    "'host:ssh'",
    "'host:0'",
    "'host:65536'",
    "'host:-1'",
    "'host:22:22'",
    "'host:٢٢'",
    "'[::1'",
    "'[nothing]'",
    "'[]'",
    "'a..b'",
    "'.host'",
    "'host.'",
    "'hösti'",
    "'ho\u202est'",
    "'/etc/passwd'",
    "'../host'",
    "'user:password@host'",
    "'ssh://host'",
    "12",
    "true",
    "null",
    "[nested]",
    "{}",
    "{address: a, host: b}",
    "{address: a, password: secret}",
    "{address: a, user: '-l'}",
    "{address: a, user: 'x y'}",
    "{address: a, port: '22'}",
    "{address: a, port: 0}",
    "{address: a, workers: 0}",
    "{address: a, workers: many}",
    "{address: a, interface: '../eth0'}",
    "{address: a, interface: 'eth0; x'}",
    "{address: a, interface: 'an-interface-too-long'}",
    "{address: a, python: '-c'}",
    "{address: a, python: ''}",
    '{address: a, python: "python\\nrm"}',
    "{address: a, data: '-x'}",
    "{address: a, network: '$(x)'}",
    "{address: '-x'}",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_host_is_refused_at_its_place(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"\n  - good.example\n  - {text}")
    message = str(caught.value)
    assert "study.yaml:7: hosts.1" in message, message
    assert len(message.splitlines()) == 1 and message.isascii() and len(message) < 400 and "Value error" not in message
    assert not list(tmp_path.glob("stolen"))


@pytest.mark.parametrize(
    "hosts, base, said",
    [
        ("[]", BASE, "no list of hosts"),
        ("{a: b}", BASE, "no list of hosts"),
        ("nowhere.yaml", BASE, "nowhere.yaml: no such file"),
        ("[a, a]", BASE, "a is there twice"),
        ("[a, b]", BASE + "nodes: 3\n", "3 nodes need as many workers, and the hosts have 2"),
        ("[a, b]", BASE.replace("ssh", "local"), "hosts are for launcher: ssh"),
        ("null", BASE + "nodes: 2\n", "launcher: ssh needs hosts"),
    ],
)
def test_hosts_that_do_not_go_with_the_rest(tmp_path: Path, hosts: str, base: str, said: str) -> None:
    with pytest.raises(ConfigError, match="study.yaml:") as caught:
        load(tmp_path, hosts, base)
    assert said in str(caught.value)


def test_a_problem_in_an_inventory_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("- a\n- 'b c'\n")
    with pytest.raises(ConfigError, match="ours.yaml:2: hosts.1.address: 'b c' is no host name"):
        load(tmp_path, "ours.yaml")
