"""Who may end the shaping of an interface: whoever started it, and root."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from bwbench.network.interface import revert

TALK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect("\\0" + sys.argv[1])
    connection.settimeout(5)
    try:
        connection.sendall(b"owner\\n")
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    except OSError:
        pass
"""


@pytest.mark.parametrize("of_another_user", [True, False])
def test_another_user_has_no_say(of_another_user: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if of_another_user and os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    name = f"bwbench-test-revert-{os.getpid()}-{of_another_user}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        watch = revert._Watch(listener, Path("/nowhere"), state=type("State", (), {"run": "a"})())  # type: ignore[arg-type]
        user = {"user": 65534, "group": 65534, "extra_groups": []} if of_another_user else {}
        talk = subprocess.Popen(["/usr/bin/env", "python3", "-c", TALK, name], cwd="/", **user)  # type: ignore[call-overload]
        watch._listen(10.0)
        for _ in range(3):
            watch._listen(0.3)
        assert talk.wait(30) == 0
        assert watch._lost_owner is not of_another_user


def test_nobody_else_is_taken_for_the_revert(monkeypatch: pytest.MonkeyPatch) -> None:
    """An abstract name is whose who binds it first."""
    run = f"test{os.getpid()}"
    code = (
        "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind('\\0' + sys.argv[1]); s.listen()\n"
        "print(); time.sleep(60)"
    )
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    command = ["/usr/bin/env", "python3", "-uc", code, revert.socket_name(run)[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/", user=65534, group=65534) as other:
        assert other.stdout is not None
        other.stdout.readline()
        monkeypatch.setattr(revert, "ARM_LIMIT_S", 0.3)
        assert not revert.answers(run)
        with pytest.raises(TimeoutError):
            revert._connect(run)
        other.kill()
