"""Segmentation offloads of an interface, by the ethtool ioctl (which works in a user namespace too)."""

from __future__ import annotations

import array
import fcntl
import socket
import struct

_SIOCETHTOOL = 0x8946
_ETHTOOL_STSO = 0x0000001F
_ETHTOOL_SGSO = 0x00000024
_ETHTOOL_SGRO = 0x0000002C


def set_offloads(interface: str, enabled: bool) -> None:
    """Switch TSO, GSO and GRO of ``interface`` in the present namespace. Raises OSError.

    With all off every packet on the wire is a frame of its own, which can be shaped, counted and lost by itself.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
        for command in (_ETHTOOL_STSO, _ETHTOOL_SGSO, _ETHTOOL_SGRO):
            value = array.array("B", struct.pack("=II", command, int(enabled)))
            pointer, _ = value.buffer_info()
            fcntl.ioctl(handle, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode(), pointer))
