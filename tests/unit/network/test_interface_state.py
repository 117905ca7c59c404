"""The file that remembers a run, and which connections control this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest

from bwbench.base.errors import ConfigError, UnfitMachineError
from bwbench.network.interface import run_state
from bwbench.network.interface.run_state import (
    QdiscSnapshot,
    RunState,
    StateFolder,
    forget_state,
    now_s,
    read_state,
    write_state,
)
from bwbench.network.interface.shaping import control_sessions, refuse_control_sessions
from bwbench.network.interface.shaping_request import PeerTraffic

STATE = RunState(
    run="0123abcd",
    dev="eth0",
    index=2,
    phase="applied",
    deadline_s=12.5,
    both=True,
    before=QdiscSnapshot.of([("mq", 0, 0xFFFF_FFFF, "")]),
    summary="10 Mbit/s",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    monkeypatch.setattr(run_state, "_candidates", lambda: iter([tmp_path / "bwbench"]))
    return StateFolder.open()


def test_a_state_is_read_back_and_only_its_owner_may_look(folder: StateFolder) -> None:
    path = folder.file_of("eth0")
    assert read_state(path) is None
    write_state(path, STATE)
    write_state(path, replace(STATE, phase="held"))
    assert read_state(path) == replace(STATE, phase="held")
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    assert oct(folder.path.stat().st_mode & 0o777) == "0o700"
    assert list(folder.path.iterdir()) == [path]


@pytest.mark.parametrize("ends_it", [KeyboardInterrupt, SystemExit])  # what a signal becomes
def test_a_write_that_is_interrupted_leaves_what_was_there(
    folder: StateFolder, monkeypatch: pytest.MonkeyPatch, ends_it: type[BaseException]
) -> None:
    path = folder.file_of("eth0")
    write_state(path, STATE)
    with monkeypatch.context() as patch, pytest.raises(ends_it):
        patch.setattr(os, "replace", Mock(side_effect=ends_it))
        write_state(path, replace(STATE, phase="held"))
    assert read_state(path) == STATE
    assert list(folder.path.iterdir()) == [path]


def test_what_a_killed_writer_has_left_goes_with_the_state(folder: StateFolder) -> None:
    path = folder.file_of("eth0")
    left = path.with_suffix(".part")
    left.touch(mode=0o600)
    write_state(path, STATE)
    assert list(folder.path.iterdir()) == [path]
    left.touch(mode=0o600)
    forget_state(path)
    assert list(folder.path.iterdir()) == []


def test_a_state_of_another_boot_is_none(folder: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder.file_of("eth0")
    write_state(path, STATE)
    monkeypatch.setattr(run_state, "_boot", lambda: "another")
    assert read_state(path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_a_file_that_is_no_state_is_said(folder: StateFolder, content: str) -> None:
    path = folder.file_of("eth0")
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(UnfitMachineError, match="delete it"):
        read_state(path)


def test_a_link_or_a_file_that_others_can_write_is_not_read(folder: StateFolder, tmp_path: Path) -> None:
    path = folder.file_of("eth0")
    write_state(path, STATE)
    path.chmod(0o666)
    with pytest.raises(UnfitMachineError, match="0600"):
        read_state(path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnfitMachineError):
        read_state(path)


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    places = [tmp_path / "open", tmp_path / "link", tmp_path / "missing" / "parent"]
    monkeypatch.setattr(run_state, "_candidates", lambda: iter(places))
    with pytest.raises(UnfitMachineError, match="nothing was applied"):
        StateFolder.open()
    monkeypatch.setattr(run_state, "_candidates", lambda: iter([*places, tmp_path / "good"]))
    assert StateFolder.open().path == tmp_path / "good"


def test_one_at_a_time(folder: StateFolder) -> None:
    with folder.locked():
        with pytest.raises(UnfitMachineError, match="another bwbench"), folder.locked(limit_s=0.1):
            pass
        waiting = threading.Thread(target=lambda: folder.locked(limit_s=10).__enter__())
        waiting.start()
    waiting.join(5)
    assert not waiting.is_alive()


def test_the_clock_goes_on_while_the_machine_sleeps() -> None:
    assert now_s() >= 0
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    assert now_s() == pytest.approx(uptime_s, abs=1.0)


@pytest.fixture
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSH_CONNECTION", "SSH_CLIENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(psutil, "net_connections", lambda kind: [])
    monkeypatch.setattr(psutil.Process, "parents", lambda self: [])


@pytest.mark.parametrize(
    "name, value",
    [
        ("SSH_CONNECTION", "10.0.0.2 50022 10.0.0.1 22"),
        ("SSH_CLIENT", "10.0.0.2 50022 22"),
        ("SSH_CONNECTION", "::ffff:10.0.0.2 50022 ::ffff:10.0.0.1 22"),
    ],
)
def test_the_environment_tells_of_a_control_session(
    no_servers: None, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    assert control_sessions() == set()
    monkeypatch.setenv(name, value)
    (session,) = control_sessions()
    assert (str(session.remote), session.remote_port, session.local_port) == ("10.0.0.2", 50022, 22)
    with pytest.raises(ConfigError, match=name):
        refuse_control_sessions(PeerTraffic.parse(["10.0.0.0/24"], []))
    with pytest.raises(ConfigError, match="50022"):
        refuse_control_sessions(PeerTraffic.parse(["10.0.0.2"], ["50000-60000"]))
    refuse_control_sessions(PeerTraffic.parse(["10.0.0.2"], ["5001"]))
    refuse_control_sessions(PeerTraffic.parse(["10.0.0.3"], []))


@pytest.mark.parametrize("value", ["", "nonsense", "10.0.0.2", "a b c d", "10.0.0.2 x 10.0.0.1 22"])
def test_an_environment_that_is_nonsense_is_passed_over(
    no_servers: None, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", value)
    assert control_sessions() == set()


def test_the_environment_of_an_ancestor_counts() -> None:
    code = (
        "import os; del os.environ['SSH_CONNECTION']; import subprocess, sys;"
        "subprocess.run([sys.executable, '-c', 'from bwbench.network.interface.shaping import *;"
        "print(*(str(session.remote) for session in control_sessions()))'], check=True)"
    )
    environment = {**os.environ, "SSH_CONNECTION": "192.0.2.7 50022 192.0.2.1 22"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "192.0.2.7" in found.stdout.split()


def test_what_ssh_servers_are_connected_to(no_servers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def connection(status: str, pid: int | None, remote: str = "10.0.0.2") -> SimpleNamespace:
        ends = {"laddr": SimpleNamespace(ip="10.0.0.1", port=22), "raddr": SimpleNamespace(ip=remote, port=50022)}
        return SimpleNamespace(status=status, pid=pid, **ends)

    names = {1: "sshd-session", 2: "firefox"}
    monkeypatch.setattr(psutil, "Process", lambda pid=0: SimpleNamespace(name=lambda: names[pid], parents=list))
    found = [
        connection("ESTABLISHED", 1),
        connection("ESTABLISHED", 2, "10.0.0.3"),
        connection("ESTABLISHED", None, "10.0.0.4"),
        connection("TIME_WAIT", 1, "10.0.0.5"),
    ]
    monkeypatch.setattr(psutil, "net_connections", lambda kind: found)
    assert [str(session.remote) for session in control_sessions()] == ["10.0.0.2"]
