"""Anonymous namespaces: made by unshare, held as file descriptors, gone with the last process that holds them.

Nothing here has a name in the file system, so nothing can be left behind there. Python has os.unshare and os.setns only
from 3.12 on; ctypes serves them all.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from bwbench.base.die_with_parent import prctl
from bwbench.base.errors import UnfitMachineError

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

PR_SET_NAME = 15
CAP_SYS_ADMIN = 21
CAP_NET_ADMIN = 12

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    """Move this process (single-threaded for a user namespace) into new namespaces; raises OSError."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(namespace_fd: int) -> None:
    """Enter the namespace behind ``namespace_fd``; raises OSError."""
    _check(_libc.setns(ctypes.c_int(namespace_fd), ctypes.c_int(0)), "setns")


def set_process_name(name: str) -> None:
    """The name that ps and top show (15 characters)."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    prctl(PR_SET_NAME, ctypes.addressof(buffer))


def has_capability(capability: int) -> bool:
    """Whether this process may use ``capability`` in its own user namespace."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False


def enter_isolation() -> None:
    """Move into new network, mount and PID namespaces, with a user namespace around them where we are not root.

    The PID namespace holds the children made from now on. Raises UnfitMachineError, which says what to do, where the
    kernel refuses.
    """
    flags = CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWNS
    if has_capability(CAP_SYS_ADMIN) and has_capability(CAP_NET_ADMIN):
        try:
            unshare(flags)
            return
        except OSError as error:
            if error.errno != errno.EPERM:
                raise UnfitMachineError(_refusal(error)) from error
    uid, gid = os.geteuid(), os.getegid()
    try:
        unshare(CLONE_NEWUSER)
        with contextlib.suppress(FileNotFoundError):  # kernels before 3.19 have no such file and need none
            Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        unshare(flags)
    except OSError as error:
        raise UnfitMachineError(_refusal(error)) from error


def _refusal(error: OSError) -> str:
    """What the kernel refused and, from the switches that it shows, what the user can do about it."""
    remedies = []
    if sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
        remedies.append("allow it with 'sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0'")
    if sysctl("kernel/unprivileged_userns_clone") == "0":
        remedies.append("allow it with 'sudo sysctl -w kernel.unprivileged_userns_clone=1'")
    for kind in ("user", "net", "pid", "mnt"):
        if sysctl(f"user/max_{kind}_namespaces") == "0":
            remedies.append(f"allow it with 'sudo sysctl -w user.max_{kind}_namespaces=10000'")
    if not remedies and Path("/.dockerenv").exists():
        remedies.append("in a container, start it with '--cap-add SYS_ADMIN --cap-add NET_ADMIN' or '--privileged'")
    remedies.append("or run the same command with sudo")
    return (
        f"this machine lets user {os.geteuid()} make no network namespaces ({error.strerror}), and without them there "
        f"are no nodes and no link between them; {', '.join(remedies)}"
    )


def sysctl(name: str) -> str | None:
    """A setting of the kernel such as ``net/core/rmem_max``, its words parted by one space; None where it has none."""
    try:
        return " ".join(Path("/proc/sys", name).read_text().split())
    except OSError:
        return None


def open_network_namespace() -> int:
    """File descriptor of the network namespace that this process is in."""
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def new_network_namespace(home_fd: int) -> Iterator[int]:
    """Be in a new network namespace (its file descriptor) within the block, in ``home_fd`` after it."""
    unshare(CLONE_NEWNET)
    try:
        yield open_network_namespace()
    finally:
        setns(home_fd)


@contextlib.contextmanager
def inside(namespace_fd: int, home_fd: int) -> Iterator[None]:
    """Be in the network namespace ``namespace_fd`` within the block, in ``home_fd`` after it."""
    setns(namespace_fd)
    try:
        yield
    finally:
        setns(home_fd)
