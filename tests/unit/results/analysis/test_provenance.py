"""Notes on where cells ran."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bwbench.records.schema import Environment, LinkRecord
from bwbench.results.analysis.caveats import (
    host_of,
    machines_of,
    mixed_note,
    real_network_note,
    shared_hosts_note,
    unlike_hosts_note,
    virtual_note,
)

ANNA = {"address": "10.0.0.1", "host": "anna", "cpu": "i5", "cores": 4, "kernel": "6.1"}
BEN = {**ANNA, "address": "10.0.0.2", "host": "ben"}


def ran_on(**content: Any) -> Environment:
    return Environment.model_validate(content)


def folder(*hosts: dict[str, Any]) -> Any:
    return SimpleNamespace(environment=ran_on(host="anna", hosts=list(hosts)))


def test_hosts_go_by_their_names() -> None:
    assert host_of(ran_on(hosts=[BEN, ANNA])) == "anna+ben"
    assert host_of(ran_on(hosts=[{"address": "10.0.0.7"}, {"name": "carl"}])) == "10.0.0.7+carl"
    assert host_of(ran_on(host="anna")) == "anna"
    assert host_of(ran_on(hosts=[ANNA, ANNA, BEN, BEN])) == "anna+ben", "two ranks a host"


def test_one_node_alone_on_the_first_host_mixes_nothing() -> None:
    assert mixed_note([("anna", "", "", ""), ("anna+ben", "", "", "")]) is None
    assert mixed_note([("anna", "", "", ""), ("ben+carl", "", "", "")]) == "Mixed: 2 hosts (anna, ben+carl)."


def found(*pairs: tuple[int, int, float, float]) -> LinkRecord:
    names = ("src", "dst", "achieved_goodput_bps", "achieved_rtt_s")
    content = {"backend": "none", "achieved_before": {"pairs": [dict(zip(names, pair, strict=True)) for pair in pairs]}}
    return LinkRecord.model_validate(content)


def test_what_the_network_between_hosts_was_is_told_and_not_what_is_inside_of_one() -> None:
    cell = folder(ANNA, ANNA, BEN, BEN)
    cell.link = found((0, 1, 4e9, 1e-4), (1, 2, 45.2e6, 0.0404), (2, 3, 4e9, 1e-4), (3, 0, 34.3e6, 0.0406))
    assert real_network_note([cell]) == (
        "Between the hosts, before each training: TCP carried 34.3 Mbit/s to 45.2 Mbit/s while all sent, a round trip "
        "took 40.4 ms to 40.6 ms."
    )
    emulated = SimpleNamespace(environment=ran_on(host="anna"), link=None)
    assert real_network_note([emulated, SimpleNamespace(environment=None)]) is None
    shaped = folder(ANNA, BEN)
    shaped.link = cell.link.model_copy(update={"backend": "interface"})
    assert real_network_note([shaped]) is None, "what was asked is told already"


def test_ranks_that_shared_hosts_are_counted() -> None:
    anna, ben = ({**host, "address": address} for host, address in ((ANNA, "10.0.0.1"), (BEN, "10.0.0.2")))
    cells = [folder(anna, anna, ben, ben), folder(anna, anna), folder(anna, ben)]
    assert shared_hosts_note(cells) == "Ranks shared hosts: 2 on 1 and 4 on 2."
    assert shared_hosts_note([folder(anna, ben), folder(), SimpleNamespace(environment=None)]) is None
    assert shared_hosts_note([folder({"name": "anna"}, {"name": "anna"})]) is None, "no address was recorded"


def test_hosts_that_are_alike_need_no_word() -> None:
    assert unlike_hosts_note([folder(ANNA, BEN), folder()]) is None
    assert unlike_hosts_note([SimpleNamespace(environment=None)]) is None


def test_what_hosts_differ_in_is_told() -> None:
    other = {**BEN, "cpu": "N100", "cores": 2, "tcp": {"tcp_congestion_control": "bbr"}}
    note = unlike_hosts_note([folder({**ANNA, "tcp": {"tcp_congestion_control": "cubic"}}, other)])
    assert note == (
        "Ranks ran on hosts that differ in processor (N100, i5); number of cores (2, 4); "
        "congestion control (bbr, cubic)."
    )


def test_hosts_of_which_one_alone_compiles_its_codecs_are_told_apart() -> None:
    note = unlike_hosts_note([folder({**ANNA, "compiled_codecs": True}, {**BEN, "compiled_codecs": False}, BEN)])
    assert note == "Ranks ran on hosts that differ in codecs (compiled, in Python)."


def test_the_congestion_control_of_real_hosts_is_told_as_that_of_emulated_ones_is() -> None:
    anna, ben = ({**host, "tcp": {"tcp_congestion_control": name}} for host, name in ((ANNA, "cubic"), (BEN, "bbr")))
    real = folder(anna, ben)
    real.link = None
    applied = SimpleNamespace(tcp={"tcp_congestion_control": "reno"})
    emulated = SimpleNamespace(environment=None, link=SimpleNamespace(applied=applied, backend="relay"))
    assert machines_of([real]).congestion_control == ("bbr", "cubic")
    assert machines_of([emulated]).congestion_control == ("reno",)


def test_virtual_nodes_are_told_because_their_times_say_nothing() -> None:
    cells = [SimpleNamespace(environment=Environment(virtual=virtual)) for virtual in (True, False)]
    assert virtual_note([*cells, SimpleNamespace(environment=None)]) == (
        "Virtual nodes in 1 of 3 cells: what they learn is right, their times say nothing; compare samples and metrics."
    )
    assert virtual_note(cells[1:]) is None
