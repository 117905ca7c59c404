"""Shaping one host's interface from afar: ``python -I -m bwbench.running.launch.ssh.shaper check|hold|show|clear``.

One JSON line on standard input asks for it (a ``ShapingRequest``; ``show`` and ``clear`` need nothing of it). ``check``
answers what is in the way, and changes nothing; ``hold`` shapes until its standard input ends, which it does with
whoever asked, however that ends. Without the right to change interfaces it starts itself again by ``sudo -n``. Answers
are JSON lines.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import select
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence

from bwbench.base.errors import BwbenchError, ConfigError, LinkError
from bwbench.base.messages import first_line
from bwbench.network.interface.kernel import Kernel
from bwbench.network.interface.remove import clear
from bwbench.network.interface.run_state import QdiscSnapshot, RunState, StateFolder, now_s
from bwbench.network.interface.shaping import Prepared, applied, hold, prepare
from bwbench.network.interface.shaping_request import PeerTraffic
from bwbench.network.interface.steps import commands
from bwbench.network.link import Link
from bwbench.network.namespaces.isolation import CAP_NET_ADMIN, has_capability
from bwbench.running.launch.ssh.host_shaping import SHAPER, ShapedInterface, ShaperAnswer, ShapingRequest
from bwbench.training.loop.interfaces import interface_towards

OLD_NAME = "bwbench.launch.ssh.shaper"  # of this module, in lines of sudoers that were written for bwbench 0.1
VERBS = ("check", "hold", "show", "clear")
# -I: root's Python takes no module from the working directory, and no words from the environment.
_IN_SUDOERS = [sys.executable, "-I", "-m", SHAPER]
STDIN = 0
SUDO_LIMIT_S = 10.0
LONGEST_S = 7 * 86_400.0


def main(arguments: list[str]) -> int:
    """One of ``check``, ``hold``, ``show`` and ``clear``."""
    line = first_line(STDIN)
    try:
        if arguments[:1] not in ([verb] for verb in VERBS):
            raise ConfigError(f"one of {', '.join(VERBS)} is to be done, and {' '.join(arguments)!r} was asked for")
        if not has_capability(CAP_NET_ADMIN):
            return _as_root(arguments, line)
        with Kernel() as kernel:
            if arguments[0] == "show":
                _say({"problem": None, "shaped": [_shaped(state) for state in StateFolder.open().states()]})
            elif arguments[0] == "clear":
                cleared = [clear(kernel, state.dev) for state in StateFolder.open().states()]
                differences = [found.difference for found in cleared if found.difference is not None]
                removed = [what for found in cleared for what in found.removed]
                _say({"problem": "; ".join(differences) or None, "removed": removed})
            else:
                prepared = _prepared(kernel, ShapingRequest.model_validate_json(line))
                if arguments[0] == "check":
                    _say({"interface": prepared.device.name, "problem": None})
                else:
                    _hold(kernel, prepared)
    except BwbenchError as error:
        _say({"problem": str(error)})
    return 0


def _prepared(kernel: Kernel, request: ShapingRequest) -> Prepared:
    peers = [address for peer in request.peers for address in _addresses(peer)]
    interface = request.interface or interface_towards(peers[0]).name
    traffic = PeerTraffic.parse(peers, [], [str(port) for port in request.spared])
    prepared = prepare(kernel, interface, traffic, Link.model_validate(request.link), both=True)
    if prepared.notes:  # of a peer that this interface does not lead to: nothing between the two would be shaped
        raise LinkError(f"{prepared.notes[0]}; name the right one: 'interface:' of this host")
    return prepared


def _shaped(state: RunState) -> ShapedInterface:
    return {"interface": state.dev, "applied": state.summary, "run": state.run, "left_s": state.deadline_s - now_s()}


def _hold(kernel: Kernel, prepared: Prepared) -> None:
    with applied(kernel, prepared, LONGEST_S, held=True) as run:
        _say(
            {
                "interface": prepared.device.name,
                "applied": prepared.summary,
                "run": prepared.names.run,
                "armed_by": run.armed_by,
                "commands": commands(prepared.steps, prepared.device.name),
            }
        )
        hold(kernel, run, LONGEST_S, wait=_until_unwanted)
    index = prepared.device.index
    now = QdiscSnapshot.of(kernel.described(index)) if kernel.name_of(index) is not None else prepared.before
    _say({"restored": now == prepared.before, "now": str(now), "before": str(prepared.before)})


def _until_unwanted(limit_s: float) -> bool:
    """Whether standard input ends within ``limit_s``."""
    ready = select.select([STDIN], [], [], limit_s)[0]
    return bool(ready) and not os.read(STDIN, 4096)


def _addresses(peer: str) -> Iterator[str]:
    """IP addresses of a host. Raises ConfigError where its name is unknown here."""
    with contextlib.suppress(ValueError):
        yield str(ipaddress.ip_address(peer))
        return
    try:
        found = socket.getaddrinfo(peer, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"{peer!r} is not known here: {error}; give that host an address with 'network:'") from None
    yield from dict.fromkeys(str(address[4][0]).partition("%")[0] for address in found)


def _as_root(arguments: Sequence[str], line: bytes) -> int:
    """The same by sudo, which is not to ask for a password. Raises ConfigError with the way out where it would."""
    allowed = ", ".join(shlex.join([*_IN_SUDOERS, verb]) for verb in VERBS)
    way_out = (
        "shaping an interface needs root: let ssh log in as root, or have sudo allow it without a password by a line "
        f"in sudoers: {os.environ.get('USER', 'USER')} ALL=(root) NOPASSWD: {allowed}"
    )
    if os.geteuid() == 0 or shutil.which("sudo") is None:
        why = "root may not change interfaces here" if os.geteuid() == 0 else "there is no sudo"
        raise ConfigError(f"{why}; {way_out}")
    refusals = []
    for start in (_IN_SUDOERS, *([sys.executable, "-m", module] for module in (SHAPER, OLD_NAME))):
        command = [*start, arguments[0]]
        if (refusal := _refusal_of_sudo(command)) is None:
            break
        refusals.append(refusal)
    else:
        raise ConfigError(f"{refusals[0]}; {way_out}")
    # Lines of earlier versions have no -I: root's Python would look for its modules where we stand.
    with subprocess.Popen(["sudo", "-n", "--", *command], stdin=subprocess.PIPE, cwd="/") as process:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.write(line)
            process.stdin.flush()
            while arguments[0] == "hold" and process.poll() is None and not _until_unwanted(1.0):
                pass
            process.stdin.close()
    return process.returncode


def _refusal_of_sudo(command: Sequence[str]) -> str | None:
    """Why sudo does not run a command without asking; None where it does."""
    question = ["sudo", "-n", "-l", "--", *command]
    try:
        asked = subprocess.run(question, capture_output=True, timeout=SUDO_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"sudo has not answered for {SUDO_LIMIT_S:.0f} s"
    said = asked.stderr.decode(errors="replace").strip().splitlines()
    return None if asked.returncode == 0 else said[-1] if said else "sudo refuses"


def _say(content: ShaperAnswer) -> None:
    with contextlib.suppress(OSError):  # whoever asked may be gone; what has been shaped is taken back all the same
        print(json.dumps(content), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
