"""netem qdiscs through pyroute2: add them, read them back, read their statistics; and how its messages speak of them.

pyroute2 (any version) has no delay distribution, no loss model, no rate beyond 32 bits and no seed. ``teach`` replaces
its description of netem's options with this one, which has them (linux/pkt_sched.h, TCA_NETEM_*).
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from pyroute2.netlink import nla
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import plugins

from bwbench.base.errors import LinkError
from bwbench.network.link.chance import GilbertElliott, quantiles
from bwbench.network.netem.shape import NetemQdisc

# Our qdiscs are recognised by their handle. "bbbb" in hexadecimal digits, as the major number.
HANDLE = 0xBBBB_0000

TICK_NS = 64  # of the kernel's scheduler clock (PSCHED_SHIFT): the older fields count in these
MAX_U32 = 2**32 - 1

# (name, type) by number. "none" is neither sent nor looked at.
_ATTRIBUTES = (
    ("TCA_NETEM_UNSPEC", "none"),
    ("TCA_NETEM_CORR", "none"),
    ("TCA_NETEM_DELAY_DIST", "cdata"),
    ("TCA_NETEM_REORDER", "none"),
    ("TCA_NETEM_CORRUPT", "none"),
    ("TCA_NETEM_LOSS", "loss_model"),
    ("TCA_NETEM_RATE", "cdata"),
    ("TCA_NETEM_ECN", "none"),
    ("TCA_NETEM_RATE64", "uint64"),
    ("TCA_NETEM_PAD", "none"),
    ("TCA_NETEM_LATENCY64", "int64"),  # nanoseconds; from Linux 4.15 on, as the next one
    ("TCA_NETEM_JITTER64", "int64"),
    ("TCA_NETEM_SLOT", "none"),
    ("TCA_NETEM_SLOT_DIST", "none"),
    ("TCA_NETEM_PRNG_SEED", "uint64"),  # from Linux 6.6 on; older ones pass over it
)
_LOSS_MODELS = (("NETEM_LOSS_UNSPEC", "none"), ("NETEM_LOSS_GI", "cdata"), ("NETEM_LOSS_GE", "cdata"))
_FIELDS = ("delay", "limit", "loss", "gap", "duplicate", "jitter")  # struct tc_netem_qopt
_RATE = struct.Struct("=IiIi")  # struct tc_netem_rate: rate, packet overhead, cell size, cell overhead
_GILBERT_ELLIOTT = struct.Struct("=4I")  # struct tc_netem_gemodel: p, r, h, 1-k


class QdiscCounts(NamedTuple):
    """What has entered a qdisc (and may wait in it), and what it dropped; bytes are those of Ethernet frames."""

    frames: int
    bytes: int
    drops: int

    @classmethod
    def of(cls, message: Any) -> QdiscCounts:
        """The statistics in what the kernel says of a qdisc."""
        statistics = message.get_attr("TCA_STATS2")
        sent, queue = statistics.get_attr("TCA_STATS_BASIC"), statistics.get_attr("TCA_STATS_QUEUE")
        return cls(sent["packets"] + queue["qlen"], sent["bytes"] + queue["backlog"], queue["drops"])


def add_netem(air: Any, index: int, qdisc: NetemQdisc) -> None:
    """Make ``qdisc`` the root qdisc of interface number ``index``; what the kernel made of it, ``check_netem`` says.

    Args:
        air: pyroute2's IPRoute of the namespace.

    Raises LinkError where the kernel refuses, or has no netem.
    """
    teach()
    try:
        air.tc("add", "netem", index, handle=HANDLE, qdisc=qdisc)
    except NetlinkError as error:
        reason = "this kernel has no sch_netem" if error.code == errno.ENOENT else str(error)
        raise LinkError(f"cannot add a netem qdisc with {qdisc.to_json()}: {reason}") from error


def check_netem(air: Any, asked: Mapping[int, NetemQdisc]) -> dict[int, NetemQdisc]:
    """What the kernel says that our qdiscs are, by the number of the interface.

    That is as ``asked`` but for the distribution, which it tells nobody, and for the seed, which it does not take
    before Linux 6.6. Raises LinkError where anything else differs.
    """
    taken = read_netem(air)
    for index, qdisc in asked.items():
        found = taken.get(index)
        if found is None or found.words() != qdisc.words():
            raise LinkError(
                f"the kernel shapes otherwise than asked: {qdisc.to_json()} was asked for, and it says "
                f"{found.to_json() if found else 'that there is no such qdisc'}"
            )
    return taken


def remove_netem(air: Any, indices: Iterable[int]) -> None:
    """Remove our root qdiscs from the interfaces with these numbers, where they have one."""
    for index in read_netem(air).keys() & set(indices):
        air.tc("del", index=index, handle=HANDLE, parent=TC_H_ROOT)


def read_netem(air: Any) -> dict[int, NetemQdisc]:
    """Our netem qdiscs in the namespace as the kernel describes them, by the number of the interface."""
    teach()
    return {message["index"]: read(message.get_attr("TCA_OPTIONS")) for message in _ours(air)}


def read_counts(air: Any) -> dict[int, QdiscCounts]:
    """The statistics of all our netem qdiscs in the namespace, by the number of the interface."""
    return {message["index"]: QdiscCounts.of(message) for message in _ours(air)}


def _ours(air: Any) -> list[Any]:
    ours = [message for message in air.get_qdiscs() if message["handle"] == HANDLE]
    return [message for message in ours if message.get_attr("TCA_KIND") == "netem"]


class _LossModel(nla):  # type: ignore[misc]
    nla_map = _LOSS_MODELS


class _Options(nla):  # type: ignore[misc]
    nla_map = _ATTRIBUTES
    fields = tuple((name, "I") for name in _FIELDS)
    loss_model = _LossModel


def teach() -> None:
    """Have pyroute2 speak of netem as this module does."""
    plugins["netem"] = SimpleNamespace(parent=TC_H_ROOT, options=_Options, get_parameters=_get_parameters)


def read(options: Any) -> NetemQdisc:
    """The qdisc that the kernel's ``options`` describe; the distribution, which it tells nobody, is left at normal."""
    delay_ns, jitter_ns = (
        options.get_attr(f"TCA_NETEM_{name}64") or options[field] * TICK_NS
        for name, field in (("LATENCY", "delay"), ("JITTER", "jitter"))
    )
    rate = options.get_attr("TCA_NETEM_RATE")
    model = options.get_attr("TCA_NETEM_LOSS")
    burst = None
    if model and (chain := model.get_attr("NETEM_LOSS_GE")):
        shares = (value / MAX_U32 for value in _GILBERT_ELLIOTT.unpack_from(chain))
        good_to_bad, bad_to_good, kept_in_bad, loss_in_good = shares
        burst = GilbertElliott(good_to_bad, bad_to_good, loss_in_good, 1 - kept_in_bad)
    return NetemQdisc(
        limit_packets=options["limit"],
        rate_bytes_per_s=options.get_attr("TCA_NETEM_RATE64") or (_RATE.unpack(rate)[0] if rate else 0),
        delay_us=round(delay_ns / 1e3),
        jitter_us=round(jitter_ns / 1e3),
        loss=options["loss"] / MAX_U32,
        burst=burst,
        seed=options.get_attr("TCA_NETEM_PRNG_SEED"),
    )


def _get_parameters(arguments: Mapping[str, NetemQdisc]) -> dict[str, object]:
    """What ``tc("add", "netem", index, qdisc=...)`` sends; called by pyroute2."""
    qdisc = arguments["qdisc"]
    limit, rate, delay_us, jitter_us, loss, chain = qdisc.words()
    attributes: list[list[Any]] = [["TCA_NETEM_LATENCY64", delay_us * 1000], ["TCA_NETEM_JITTER64", jitter_us * 1000]]
    if rate:
        attributes.append(["TCA_NETEM_RATE", _RATE.pack(min(rate, MAX_U32), 0, 0, 0)])
    if rate > MAX_U32:
        attributes.append(["TCA_NETEM_RATE64", rate])
    if jitter_us:
        table = quantiles(qdisc.distribution)
        attributes.append(["TCA_NETEM_DELAY_DIST", struct.pack(f"={len(table)}h", *table)])
    if chain:
        attributes.append(["TCA_NETEM_LOSS", {"attrs": [["NETEM_LOSS_GE", _GILBERT_ELLIOTT.pack(*chain)]]}])
    if qdisc.seed is not None:
        attributes.append(["TCA_NETEM_PRNG_SEED", qdisc.seed])
    ticks = {"delay": delay_us * 1000 // TICK_NS, "jitter": jitter_us * 1000 // TICK_NS}
    return {"limit": limit, "loss": loss, "gap": 0, "duplicate": 0, **ticks, "attrs": attributes}
