"""Does this kernel have netem? Asked of the kernel itself: a netem qdisc on the loopback of a namespace made for that.

Run as a program of its own, because a user namespace takes a single-threaded process, and so that the namespace ends
with it. Prints nothing; the exit status is the answer. Imports nothing of ours and nothing heavy.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import sys

HAS_NETEM, NO_NETEM, NO_NAMESPACE = 0, 10, 11
LIMIT_S = 10.0  # the kernel may load the module first

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_RTM_NEWQDISC = 36
_NLMSG_ERROR = 2
_REQUEST_ACK_CREATE_EXCLUSIVE = 0x0001 | 0x0004 | 0x0400 | 0x0200
_TCA_KIND, _TCA_OPTIONS = 1, 2
_TC_H_ROOT = 0xFFFFFFFF
_LOOPBACK_INDEX = 1  # in every network namespace


def netem_available() -> bool:
    """Whether a netem qdisc can be added here. False also where this user may make no namespace to try it in."""
    argv, nothing = [sys.executable, "-I", __file__], subprocess.DEVNULL
    try:
        answer = subprocess.run(argv, stdin=nothing, stdout=nothing, stderr=nothing, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == HAS_NETEM


def _attribute(kind: int, payload: bytes) -> bytes:
    length = 4 + len(payload)
    return struct.pack("=HH", length, kind) + payload + bytes(-length % 4)


def _add_netem() -> int:
    """The error code (0: none) with which the kernel answers; raises OSError where it does not."""
    parameters = struct.pack("=6I", 0, 1000, 0, 0, 0, 0)  # latency, limit, loss, gap, duplicate, jitter
    body = struct.pack("=BxHiIII", socket.AF_UNSPEC, 0, _LOOPBACK_INDEX, 0, _TC_H_ROOT, 0)
    body += _attribute(_TCA_KIND, b"netem\0") + _attribute(_TCA_OPTIONS, parameters)
    header = struct.pack("=IHHII", 16 + len(body), _RTM_NEWQDISC, _REQUEST_ACK_CREATE_EXCLUSIVE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(LIMIT_S)
        kernel.sendto(header + body, (0, 0))
        answer = kernel.recv(65536)
    kind = struct.unpack_from("=H", answer, 4)[0]
    return -int(struct.unpack_from("=i", answer, 16)[0]) if kind == _NLMSG_ERROR else 0


def main() -> int:
    """The answer as an exit status."""
    libc = ctypes.CDLL(None)
    if all(libc.unshare(ctypes.c_int(flags)) != 0 for flags in (_CLONE_NEWNET, _CLONE_NEWUSER | _CLONE_NEWNET)):
        return NO_NAMESPACE
    try:
        return HAS_NETEM if _add_netem() == 0 else NO_NETEM
    except OSError:
        return NO_NETEM


if __name__ == "__main__":
    os._exit(main())
