"""The parts of launcher ``ssh`` that need no ssh."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bwbench.base.errors import UnfitMachineError
from bwbench.base.start_module import REMOTELY
from bwbench.experiment.config.hosts import Host
from bwbench.running.launch.ssh import connection, keeper
from bwbench.running.launch.ssh.connection import HostError, HostSession, command_line, explain_exit
from bwbench.running.launch.ssh.host_facts import PreflightFacts
from bwbench.running.launch.ssh.host_shaping import HeldShaping, ShapingRequest
from bwbench.running.launch.ssh.keeper import RunEnd, _send_new
from bwbench.running.launch.ssh.launcher import placed
from bwbench.running.launch.ssh.preflight import HostReport, refuse_unfit
from tests.unit.running.launch.hosts import facts

pytest.importorskip("asyncssh", reason="the extra [ssh] is not installed")
ANNA, BEN = Host(address="anna.example", user="anna", port=2222), Host(address="10.0.0.2", workers=3)


def test_ranks_fill_the_hosts_in_order() -> None:
    assert placed((ANNA, BEN), 4) == [(ANNA, 1), (BEN, 3)]
    assert placed((ANNA, BEN), 2) == [(ANNA, 1), (BEN, 1)]
    assert placed((ANNA, BEN), 1) == [(ANNA, 1)]


def test_every_problem_of_every_host_is_a_line() -> None:
    refuse_unfit([HostReport(ANNA), HostReport(BEN)])
    with pytest.raises(UnfitMachineError) as caught:
        refuse_unfit([HostReport(ANNA, problems=("no torch", "no disk")), HostReport(BEN)])
    first, *table = str(caught.value).splitlines()
    assert first == "1 of 2 hosts cannot take part; nothing was started"
    assert table == ["  anna@anna.example:2222  no torch", "  anna@anna.example:2222  no disk"]


@pytest.mark.parametrize(
    "host, said, expected",
    [
        (ANNA, facts(ssh_address="192.168.1.10"), "192.168.1.10"),
        (ANNA, facts(), "anna.example"),
        (ANNA, None, "anna.example"),
        (Host(address="a", network="10.9.9.9"), facts(ssh_address="192.168.1.10"), "10.9.9.9"),
        (Host(address="a", interface="wlan0"), facts(addresses={"wlan0": ["10.1.1.1"]}, ssh_address="x"), "10.1.1.1"),
    ],
)
def test_where_the_other_hosts_reach_the_first(host: Host, said: PreflightFacts | None, expected: str) -> None:
    assert HostReport(host, said).address == expected


def test_every_word_of_a_command_is_quoted() -> None:
    host = Host(address="a", python="/opt/my venv/$(x)/python")
    assert command_line(host, "m", ["a b", "; rm"]) == f"'/opt/my venv/$(x)/python' -c '{REMOTELY}' m 'a b' '; rm'"


@pytest.mark.parametrize(
    "status, said, expected",
    [
        (127, "bash: no such file", "name the interpreter with python:"),
        (1, "Traceback\nModuleNotFoundError: No module named 'bwbench'", "lacks a package"),
        (2, "", "ended with status 2: it said nothing"),
    ],
)
def test_an_exit_is_explained(status: int, said: str, expected: str) -> None:
    assert expected in explain_exit(ANNA, status, said)


@pytest.mark.parametrize("token", ["", "../../etc", "a" * 15, "g" * 20, "a" * 20 + "/"])
def test_a_token_is_digits_alone(token: str) -> None:
    with pytest.raises(ValueError, match="is no token"):
        keeper.folder_of(token)


def test_the_token_is_no_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody on a host reads arguments, paths in them included; its environment only a process's own user."""
    started: list[tuple[Sequence[str], Mapping[str, str]]] = []

    class Started:
        pid, returncode = os.getpid(), 1

        def __init__(self, command: Sequence[str], env: Mapping[str, str], **_: object) -> None:
            started.append((command, env))

        def poll(self) -> int:
            return 1

    token = "ab" * 18
    order = keeper.KeeperOrder(token=token, cell={"id": "x"}, torchrun=("--nnodes=1",), environment={}, shaping=None)
    monkeypatch.setattr(keeper, "STATE", tmp_path)
    monkeypatch.setattr(keeper.subprocess, "Popen", Started)
    keeper.start(order)
    keeper._train(order, keeper.folder_of(token), HeldShaping(None, hidden=keeper.TOKEN))
    assert len(started) == 2 and started[0][1][keeper.TOKEN] == token
    commands = [*(command for command, _ in started), [command_line(ANNA, keeper.KEEPER, ["attach"])]]
    assert not any(token in word for command in commands for word in command)


def test_what_a_host_names_stays_inside_its_folder(tmp_path: Path) -> None:
    printed: list[str] = []
    session = HostSession(ANNA, None, "ab" * 10, tmp_path / "0", lambda _, line: printed.append(line))

    def hears(name: str, text: str, offset: int = 0) -> None:
        session._take({"file": name, "offset": offset, "data": base64.b64encode(text.encode()).decode()})

    for name in ("../stolen", "/tmp/stolen-by-bwbench", "cell/../../stolen"):
        hears(name, "x")
    assert not list(tmp_path.rglob("stolen*")) and not Path("/tmp/stolen-by-bwbench").exists()
    hears("cell/attempt-1/rank0.jsonl", "one\n")
    hears("cell/attempt-1/rank0.jsonl", "two\n", 4)
    hears("output.log", "half a ")
    hears("output.log", "line\nmore", 7)
    assert (tmp_path / "0" / "cell" / "attempt-1" / "rank0.jsonl").read_text() == "one\ntwo\n"
    assert printed == ["half a line"]


def test_what_is_new_is_told_once_and_a_replaced_file_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cell" / "attempt-1").mkdir(parents=True)
    log, status = tmp_path / "output.log", tmp_path / "cell" / "status.json"
    log.write_text("one\n")
    status.write_text("{}")
    (tmp_path / "cell" / "cell.json").write_text("{}")
    offsets: dict[str, int] = {}

    def told() -> list[tuple[str, str]]:
        _send_new(tmp_path, offsets)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [(line["file"], base64.b64decode(line["data"]).decode()) for line in lines]

    assert told() == [("output.log", "one\n"), ("cell/status.json", "{}")]
    assert told() == []
    with log.open("a") as file:
        file.write("two\n")
    status.write_text("[]")
    os.utime(status, ns=(1, 1))
    assert told() == [("output.log", "two\n"), ("cell/status.json", "[]")]


def test_a_connection_that_breaks_after_long_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for a host begins where its connection broke, not where the training began."""
    now_s, lines = [0.0], [["quiet for an hour"], ['{"exit": {"returncode": 0, "why": null}}']]
    monkeypatch.setattr(connection.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(connection, "RECONNECT_S", 0.0)

    class Connection:
        async def create_process(self, _: str) -> Any:
            return SimpleNamespace(stdout=self.said(), stdin=SimpleNamespace(write=lambda _: None))

        async def said(self) -> Any:
            for line in lines.pop(0):
                if line.startswith("quiet"):
                    now_s[0] += 3600.0
                    raise ConnectionResetError("broken")
                yield line

        def abort(self) -> None:
            """Nothing to close."""

    async def connect(_: Host) -> Connection:
        return Connection()

    monkeypatch.setattr(connection, "connect", connect)
    session = HostSession(ANNA, Connection(), "ab" * 10, tmp_path, lambda *_: None)
    asyncio.run(session.follow())
    assert session.lost is None and session.ended == RunEnd(returncode=0, why=None)


def test_a_host_is_out_of_reach_once_its_keeper_has_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other hosts are then told to stop: who waits for a rank that is gone may have nothing on its way to it."""
    now_s, seen = [100.0], []
    monkeypatch.setattr(connection.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(connection, "RECONNECT_S", 0.0)

    async def connect(_: Host) -> Any:
        now_s[0] += 16.0
        seen.append(session.out_of_reach)
        raise HostError("no answer")

    monkeypatch.setattr(connection, "connect", connect)
    session = HostSession(ANNA, None, "ab" * 10, tmp_path, lambda *_: None)
    asyncio.run(session.follow())
    assert seen == [False, True, True] and session.lost == "no answer"


def test_facts_and_orders_arrive_as_they_were() -> None:
    said = facts(ssh_port=22, addresses={"wlan0": ["10.0.0.1"]}, missing_data=["no data"])
    content = json.loads(json.dumps({**said.to_json(), "of a later version": 1}))
    assert PreflightFacts.model_validate(content) == said
    request = ShapingRequest(link={"latency": "1 ms"}, interface=None, peers=("b",), spared=(22,))
    for shaping in (None, request):
        order = keeper.KeeperOrder(
            token="ab" * 10, cell={"id": "x"}, torchrun=("--nnodes=1",), environment={"A": "b"}, shaping=shaping
        )
        assert keeper.KeeperOrder.model_validate_json(json.dumps(order.to_json())) == order
    end = RunEnd(returncode=-9, why="told to stop")
    assert RunEnd.model_validate_json(json.dumps(end.to_json())) == end
