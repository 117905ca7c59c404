"""The files by which a program asks who it is and who the others are: what they say inside a node.

The names of the nodes stand in /etc/hosts, nobody is asked for other ones, /sys shows the node's own interfaces, and
/proc the processes of the network by the numbers that they have there (the machine's shows others under these, so that
``ps`` and psutil find nothing or somebody else). All of it is mounted over the machine's files in mount namespaces of
ours, so that it is seen in nodes alone and ends with them. Where a kernel refuses a mount, or a file is not there, the
machine's own stays: only names are worse then.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from bwbench.network.namespaces import isolation

# For programs that ask a server by themselves: nothing leads there, so that they are refused at once.
NO_NAME_SERVER = "192.0.2.1"

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 8, 4096, 16384, 1 << 19
_MNT_DETACH = 2
_SYS = "/sys"
_CGROUPS = "/sys/fs/cgroup"

_libc = ctypes.CDLL(None, use_errno=True)


def node_name(node: int) -> str:
    """What the node is called."""
    return f"node{node}"


def hosts_file(addresses: Sequence[str]) -> str:
    """/etc/hosts: the nodes by their names, at their addresses on the shaped link.

    A socket for both kinds of IP shows a peer's address in the form of IPv6, which torch asks the name of. It has one
    of its own: a name with two addresses is more than some programs can bind to.
    """
    lines = (
        f"{address} {node_name(node)}\n::ffff:{address} {node_name(node)}.mapped\n"
        for node, address in enumerate(addresses)
    )
    return "".join(["127.0.0.1 localhost\n", *lines])


def name_services(machine: str) -> str:
    """/etc/nsswitch.conf of a node: the machine's, but for hosts, which /etc/hosts alone answers for."""
    asked = "hosts: files"
    changed, found = re.subn(r"^[ \t]*hosts:.*$", asked, machine, flags=re.MULTILINE)
    return changed if found else f"{machine.rstrip()}\n{asked}\n".lstrip()


def hide_outside(addresses: Sequence[str]) -> None:
    """Have /etc/hosts and its like speak of the nodes alone, in the present mount namespace.

    That has to be the process's own, shared with none but those that it starts.
    """
    switch = Path("/etc/nsswitch.conf")
    files = {
        "hosts": hosts_file(addresses),
        "resolv.conf": f"# Nodes see only each other.\nnameserver {NO_NAME_SERVER}\noptions timeout:1 attempts:1\n",
    }
    with contextlib.suppress(OSError):
        files["nsswitch.conf"] = name_services(switch.read_text(encoding="utf-8", errors="replace"))
    with contextlib.suppress(OSError):
        _keep_to_ourselves()
        _mount("tmpfs", _SYS, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)  # for a moment: somewhere to write
        try:
            for name, content in files.items():
                (Path(_SYS) / name).write_text(content, encoding="utf-8")
                with contextlib.suppress(OSError):
                    _mount(f"{_SYS}/{name}", f"/etc/{name}", None, _MS_BIND)
        finally:
            _check(_libc.umount2(_SYS.encode(), ctypes.c_int(_MNT_DETACH)), "umount")


def be_node(node: int) -> None:
    """Give this process, in the node's network namespace, the node's name, and a /sys and a /proc of its own."""
    with contextlib.suppress(OSError):  # such namespaces may be few
        isolation.unshare(isolation.CLONE_NEWUTS)
        socket.sethostname(node_name(node))
        isolation.unshare(isolation.CLONE_NEWNS)
        _keep_to_ourselves()
        for show in (_show_own_interfaces, _show_own_processes):
            with contextlib.suppress(OSError):  # the machine's may be hidden in part, as in a container
                show()


def _show_own_processes() -> None:
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def _show_own_interfaces() -> None:
    cgroups = None
    with contextlib.suppress(OSError):
        cgroups = os.open(_CGROUPS, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _mount("sysfs", _SYS, "sysfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        if cgroups is not None:  # by which programs learn what processors and memory they may use
            with contextlib.suppress(OSError):
                _mount(f"/proc/self/fd/{cgroups}", _CGROUPS, None, _MS_BIND | _MS_REC)
    finally:
        if cgroups is not None:
            os.close(cgroups)


def _keep_to_ourselves() -> None:
    """What is mounted from now on is seen in no other mount namespace, the machine's least of all."""
    _mount("none", "/", None, _MS_REC | _MS_SLAVE)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    kind_bytes = kind.encode() if kind is not None else None
    _check(_libc.mount(source.encode(), target.encode(), kind_bytes, ctypes.c_ulong(flags), None), f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
