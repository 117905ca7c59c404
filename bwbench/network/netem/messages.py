"""What netem's netlink messages look like, for pyroute2, which knows only some of their attributes.

pyroute2 (any version) has no delay distribution, no loss model, no rate beyond 32 bits and no seed. ``teach`` replaces
its description of netem's options with this one, which has them (linux/pkt_sched.h, TCA_NETEM_*).
"""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

from bwbench.network.link.jitter import quantiles
from bwbench.network.link.loss import GilbertElliott
from bwbench.network.netem.parameters import NetemQdisc

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


def teach() -> None:
    """Have pyroute2 speak of netem as this module does. A second time does nothing."""
    from pyroute2.netlink import nla
    from pyroute2.netlink.rtnl import TC_H_ROOT
    from pyroute2.netlink.rtnl.tcmsg import plugins

    if getattr(plugins["netem"], "get_parameters", None) is _get_parameters:
        return

    class LossModel(nla):  # type: ignore[misc]
        nla_map = _LOSS_MODELS

    class Options(nla):  # type: ignore[misc]
        nla_map = _ATTRIBUTES
        fields = tuple((name, "I") for name in _FIELDS)
        loss_model = LossModel

    plugins["netem"] = SimpleNamespace(parent=TC_H_ROOT, options=Options, get_parameters=_get_parameters)


def read(options: Any) -> NetemQdisc:
    """The qdisc that the kernel's ``options`` describe; the distribution, which it tells nobody, is left at normal."""
    delay_ns, jitter_ns = (
        options.get_attr(f"TCA_NETEM_{name}64") or options[field] * TICK_NS
        for name, field in (("LATENCY", "delay"), ("JITTER", "jitter"))
    )
    rate = options.get_attr("TCA_NETEM_RATE")
    model = options.get_attr("TCA_NETEM_LOSS")
    chain = model.get_attr("NETEM_LOSS_GE") if model else None
    return NetemQdisc(
        limit_packets=options["limit"],
        rate_bytes_per_s=options.get_attr("TCA_NETEM_RATE64") or (_RATE.unpack(rate)[0] if rate else 0),
        delay_us=round(delay_ns / 1e3),
        jitter_us=round(jitter_ns / 1e3),
        loss=options["loss"] / MAX_U32,
        burst=_read_chain(chain) if chain else None,
        seed=options.get_attr("TCA_NETEM_PRNG_SEED"),
    )


def _get_parameters(arguments: dict[str, Any]) -> dict[str, Any]:
    """What ``tc("add", "netem", index, qdisc=...)`` sends; called by pyroute2."""
    qdisc: NetemQdisc = arguments["qdisc"]
    limit, rate, delay_us, jitter_us, loss, chain = qdisc.words()
    attributes: list[list[Any]] = [
        ["TCA_NETEM_LATENCY64", delay_us * 1000],
        ["TCA_NETEM_JITTER64", jitter_us * 1000],
    ]
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


def _read_chain(data: bytes) -> GilbertElliott:
    good_to_bad, bad_to_good, kept_in_bad, loss_in_good = (
        value / MAX_U32 for value in _GILBERT_ELLIOTT.unpack_from(data)
    )
    return GilbertElliott(good_to_bad, bad_to_good, loss_in_good, 1 - kept_in_bad)
