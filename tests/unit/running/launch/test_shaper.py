"""What the shaper answers where it cannot shape."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.running.launch.ssh import shaper


@pytest.fixture
def without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who may not change interfaces; returns the folder that its programs are in."""
    monkeypatch.setattr(shaper, "has_capability", lambda _: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shaper, "first_line", lambda descriptor: b"{}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("USER", "anna")
    return tmp_path


def answer(capfd: pytest.CaptureFixture[str]) -> str:
    return str(json.loads(capfd.readouterr().out)["problem"])


def sudo(folder: Path, *lines: str) -> None:
    (folder / "sudo").write_text("\n".join(["#!/bin/sh", *lines]))
    (folder / "sudo").chmod(0o755)


def test_without_sudo_root_is_the_way(without_rights: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert shaper.main(["check"]) == 0
    assert answer(capfd).startswith("there is no sudo; shaping an interface needs root")


def test_the_line_for_sudoers_is_shown(without_rights: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sudo(without_rights, "echo 'sudo: a password is required' >&2", "exit 1")
    assert shaper.main(["check"]) == 0
    said = answer(capfd)
    assert said.startswith("sudo: a password is required")
    assert "anna ALL=(root) NOPASSWD: " in said and "*" not in said
    words = [f"{sys.executable} -I -m bwbench.running.launch.ssh.shaper {verb}" for verb in shaper.VERBS]
    assert said.endswith(", ".join(words))


def test_with_sudo_it_is_asked_there(without_rights: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sudo(without_rights, '[ "$2" = -l ] && exit 0', "read line", 'echo "{\\"problem\\": \\"as root: $line\\"}"')
    assert shaper.main(["check"]) == 0
    assert answer(capfd) == "as root: {}"


def test_a_line_for_sudoers_of_an_earlier_version_goes_on_working(
    without_rights: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    of_old_name = '[ "$6" = bwbench.launch.ssh.shaper ]'
    sudo(
        without_rights,
        f'if [ "$2" = -l ]; then {of_old_name}; exit $?; fi',
        "read line",
        'echo "{\\"problem\\": \\"$5 as root\\"}"',
    )
    assert shaper.main(["check"]) == 0
    assert answer(capfd) == "bwbench.launch.ssh.shaper as root"


def test_root_without_the_capability_asks_nobody(
    without_rights: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    sudo(without_rights, "exit 9")
    assert shaper.main(["check"]) == 0
    assert answer(capfd).startswith("root may not change interfaces here")


def test_peers_by_address_or_name() -> None:
    assert list(shaper._addresses("10.0.0.1")) == ["10.0.0.1"]
    assert "127.0.0.1" in set(shaper._addresses("localhost"))
    with pytest.raises(ConfigError, match="'network:'"):
        list(shaper._addresses("no-such-host.invalid"))
