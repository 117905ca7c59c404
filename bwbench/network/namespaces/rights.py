"""What the kernel allows programs in the nodes: little of what root may, also where root has started them.

Without root the namespaces of a network belong to a user namespace, and no capability reaches beyond them. Around those
that root makes there is none. What a program does not have in its bounding set it cannot get back, by no set-user-ID
program either. ``no_new_privs`` would add nothing to that, and take its rights from a ``ping`` or ``sudo`` in a node.
"""

from __future__ import annotations

import contextlib
import itertools

from bwbench.base.die_with_parent import prctl

_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

# By number, with what needs it. Not here: modules, mounts, raw devices, other programs' memory, BPF, the clock, and
# SYS_ADMIN and NET_ADMIN, with which a program could leave its node or take the shaping off it.
KEPT = {
    0: "CHOWN: files of whoever has called root, as all up to SETUID",
    1: "DAC_OVERRIDE: results and data in another user's folder",
    2: "DAC_READ_SEARCH",
    3: "FOWNER",
    4: "FSETID",
    5: "KILL: a program ends its own children of other users",
    6: "SETGID: tcpdump and servers that go on as another user",
    7: "SETUID",
    10: "NET_BIND_SERVICE: servers below port 1024",
    13: "NET_RAW: ping, tcpdump",
    18: "SYS_CHROOT: tcpdump and servers that lock themselves in",
    23: "SYS_NICE: the probe of the link, which must not wait for what it measures beside",
    29: "AUDIT_WRITE: su and sudo say what they do",
}


def give_up_rights() -> None:
    """Take all capabilities but ``KEPT`` off the bounding set; in force for what is executed next."""
    with contextlib.suppress(OSError):  # beyond the last one that this kernel has, or where we may not (containers)
        for capability in itertools.count():
            if prctl(_PR_CAPBSET_READ, capability) == 1 and capability not in KEPT:
                prctl(_PR_CAPBSET_DROP, capability)
    with contextlib.suppress(OSError):  # kernels before 4.3 have none
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
