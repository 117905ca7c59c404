"""The qdiscs of an interface before anything is touched: may they be replaced, and did they come back?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import LinkError
from bwbench.network.interface.settings import INGRESS_PARENT, ROOT, show_handle

_DEFAULT_QDISC = Path("/proc/sys/net/core/default_qdisc")  # in the machine's first network namespace alone
_NO_QUEUE, _PER_QUEUE = "noqueue", "mq"  # what the kernel makes of interfaces without and with several queues
_FOUND_AGAIN = ("pfifo_fast", "fq_codel", "fq", "pfifo", "sfq", "codel", "cake")  # defaults that make a good leaf


@dataclass(frozen=True)
class Snapshot:
    """Kind, handle, parent and settings of every qdisc of one interface, sorted."""

    qdiscs: tuple[tuple[str, int, int, str], ...]

    @classmethod
    def of(cls, described: Sequence[Sequence[str | int]]) -> Snapshot:
        """From ``Kernel.described`` or from JSON."""
        return cls(tuple((str(kind), int(handle), int(parent), str(text)) for kind, handle, parent, text in described))

    def __str__(self) -> str:
        return ", ".join(_show(*qdisc[:3]) for qdisc in self.qdiscs) or "none"

    @property
    def root(self) -> str | None:
        """Kind of the root qdisc."""
        return next((kind for kind, _, parent, _ in self.qdiscs if parent == ROOT), None)

    @property
    def has_ingress(self) -> bool:
        """Whether somebody looks at what comes in."""
        return any(parent == INGRESS_PARENT for _, _, parent, _ in self.qdiscs)

    @property
    def leaf(self) -> str | None:
        """What the kernel queues with here, to be used for the traffic that is left alone; None: nothing special."""
        kinds = {kind for kind, _, parent, _ in self.qdiscs if parent != INGRESS_PARENT} - {_PER_QUEUE}
        return next((kind for kind in _FOUND_AGAIN if kind in kinds), None)

    def refuse_unless_default(self, dev: str, both: bool) -> None:
        """Raise LinkError where the kernel would not make these qdiscs again by itself.

        Its own have the handle 0; nobody else can make such ones.
        """
        theirs = [qdisc for qdisc in self.qdiscs if qdisc[2] != INGRESS_PARENT and qdisc[1] != 0]
        if theirs or self.root is None:
            raise LinkError(
                f"{dev} has qdiscs that somebody has set up ({self}), and the kernel would not make them again. "
                f"Nothing was changed; if nobody needs them, take them off: tc qdisc del dev {dev} root"
            )
        again = _default_qdisc()
        made = {kind for kind, _, parent, _ in self.qdiscs if parent != INGRESS_PARENT} - {_NO_QUEUE, _PER_QUEUE}
        if again is not None and made - {again}:
            raise LinkError(
                f"{dev} has the default qdisc of an earlier time ({self}), and now the kernel would make {again} in "
                "its place. Nothing was changed; say for the time being what it is to make: "
                f"sysctl -w net.core.default_qdisc={min(made - {again})}"
            )
        if both and self.has_ingress:
            raise LinkError(
                f"{dev} has an ingress qdisc already ({self}): somebody else looks at what comes in. Nothing was "
                "changed; --only-up shapes what goes out alone"
            )


def _default_qdisc() -> str | None:
    try:
        return _DEFAULT_QDISC.read_text().strip()
    except OSError:
        return None


def _show(kind: str, handle: int, parent: int) -> str:
    if parent == INGRESS_PARENT:
        return kind
    place = "root" if parent == ROOT else f"parent {show_handle(parent)}"
    return f"{kind} {show_handle(handle)} {place}"
