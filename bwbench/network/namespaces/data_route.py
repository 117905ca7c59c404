"""The route of a node's data network, by which the kernel is told what holds for the connections that take it."""

from __future__ import annotations

from ipaddress import ip_interface

from bwbench.network.namespaces import addresses as named

_NETWORK = str(ip_interface(f"{named.node_addresses(0).data_address}/{named.PREFIX_LENGTH}").network)
_CONGESTION_CONTROL = "RTAX_CC_ALGO"
_RTO_MIN = 13  # RTAX_RTO_MIN: the kernel obeys it only where it is locked


def tell_data_route(node: int, congestion_control: str | None = None, rto_min_s: float | None = None) -> bool:
    """Put the kernel's own route of the data network in again, with what it says of TCP; what is None it says no more.

    From inside the node's namespace, once its interface is up. Returns whether the kernel took it.

    Args:
        congestion_control: its name; any that the kernel has.
        rto_min_s: the shortest wait before a repetition, in whole milliseconds.
    """
    from pyroute2 import IPRoute  # inside: 'bwbench doctor' has no need of it
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.rtnl.rtmsg import rtmsg_base

    nla = rtmsg_base.metrics
    if all(attribute != _CONGESTION_CONTROL for attribute, _ in nla.nla_map):  # pyroute2's ends just before it
        nla.nla_map = (*nla.nla_map, (_CONGESTION_CONTROL, "asciiz"))
    metrics: dict[str, str | int] = {}
    if congestion_control is not None:
        metrics["cc_algo"] = congestion_control
    if rto_min_s is not None:
        metrics |= {"lock": 1 << _RTO_MIN, "rto_min": round(rto_min_s * 1e3)}
    with IPRoute() as here:
        try:
            here.route(
                "replace",
                dst=_NETWORK,
                oif=here.link_lookup(ifname=named.DATA_INTERFACE)[0],
                scope="link",
                proto="kernel",
                prefsrc=named.node_addresses(node).data_address,
                metrics=metrics,
            )
        except NetlinkError:
            return False
    return True
