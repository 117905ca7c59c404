"""Sites of a link and the paths between them: what they come to, and what is refused in words and by line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bwbench.base.errors import ConfigError
from bwbench.base.explain import explain
from bwbench.network.backend_choice import choose, super_packet_bytes
from bwbench.network.link import Link
from bwbench.network.link.link_checks import unknown_nodes
from bwbench.network.link.site_network import SharedLine, SiteNetwork
from bwbench.network.link.sites import published_regions
from bwbench.network.link.trace_file import freeze_link
from bwbench.records.cell_identity import DEFAULTS

OFFICES: dict[str, Any] = {
    "bandwidth": "1 Gbit/s",
    "latency": "0.1 ms",
    "sites": {
        "bern": {"up": "50 Mbit/s", "down": "200 Mbit/s", "latency": "8 ms"},
        "oslo": {"bandwidth": "100 Mbit/s", "latency": "12 ms", "queue": "20 ms"},
    },
}
REGIONS: dict[str, Any] = {"bandwidth": "1 Gbit/s", "regions": ["oregon", "virginia", "tokyo"]}


def network(asked: dict[str, Any], num_nodes: int) -> SiteNetwork:
    found = Link.model_validate(asked).site_network(num_nodes)
    assert found is not None
    return found


def refusals(**asked: Any) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as error:
        Link.model_validate({"bandwidth": "1 Gbit/s", **asked})
    return explain(error.value, Link)


def refusal(**asked: Any) -> str:
    ((loc, text),) = refusals(**asked)
    return ".".join(map(str, loc)) + ": " + text


def test_nodes_are_dealt_out_evenly_in_order() -> None:
    assert network(OFFICES, 5).members == (range(3), range(3, 5))
    assert network(OFFICES, 5).site_of == (0, 0, 0, 1, 1)


def test_sites_may_say_how_many_nodes_they_have() -> None:
    sites = {"bern": {**OFFICES["sites"]["bern"], "nodes": 1}, "oslo": {**OFFICES["sites"]["oslo"], "nodes": 3}}
    asked = {**OFFICES, "sites": sites}
    assert network(asked, 4).sizes == (1, 3)
    ((key, text),) = unknown_nodes(Link.model_validate(asked), 6)
    assert (key, text.split(";")[0]) == ("sites", "the sites have 4 nodes (bern 1, oslo 3), and there are 6")


def test_one_node_alone_has_no_sites() -> None:
    assert Link.model_validate(OFFICES).site_network(1) is None
    assert unknown_nodes(Link.model_validate(OFFICES), 1) == []


def test_fewer_nodes_than_sites() -> None:
    ((key, text),) = unknown_nodes(Link.model_validate(REGIONS), 2)
    assert (key, text) == ("sites", "2 nodes in 3 sites leave tokyo without any; take 3 or more")


def test_lines_have_their_rates_and_queues() -> None:
    found = network(OFFICES, 4)
    assert found.up == (SharedLine(50e6, 312_500), SharedLine(100e6, 250_000))  # 50 ms, and 20 ms of its own
    assert found.down == (SharedLine(200e6, 1_250_000), SharedLine(100e6, 250_000))
    assert [line.rate_bps for line in found.route(0, 1)] == [50e6, 100e6]
    assert found.route(0, 0) == []


def test_a_queue_in_bandwidth_delay_products_goes_by_the_whole_round_trip() -> None:
    lan = {"bandwidth": "1 Gbit/s", "latency": "5 ms", "queue": "1 bdp"}
    site, far = {"bandwidth": "100 Mbit/s", "latency": "10 ms"}, {"bandwidth": "100 Mbit/s", "latency": "50 ms"}
    found = network({**lan, "sites": {"a": site, "b": site, "c": far}}, 3)
    # 10 ms there, 30 ms to c, and 5 ms of the LANs, both ways.
    assert [line and line.queue_bytes for line in (*found.up, *found.down)] == pytest.approx([875_000] * 6)
    paths = {"a": {"b": "100 Mbit/s 20 ms"}, "b": {"a": "100 Mbit/s 40 ms"}}
    found = network({**lan, "sites": {"a": {"bandwidth": "100 Mbit/s"}, "b": {}}, "paths": paths}, 2)
    lines = (found.up[0], found.down[0], found.paths[0][1], found.paths[1][0])  # 20 + 40 + 2 * 5 ms for all
    assert [line and line.queue_bytes for line in lines] == pytest.approx([875_000] * 4)


@pytest.mark.parametrize("rates", [{"up": "10 Mbit/s"}, {"down": "10 Mbit/s"}, {"bandwidth": "10 Mbit/s"}, {}])
def test_queues_in_packets_are_recorded(rates: dict[str, str]) -> None:
    sites = {"a": {**rates, "queue": "30 packets"}, "b": {}}
    found = network({"bandwidth": "1 Gbit/s", "sites": sites, "paths": {"a": {"b": "10 Mbit/s 5 ms"}}}, 2)
    applied: dict[str, Any] = found.applied()
    assert [site["queue_packets"] for site in applied["sites"]] == [30 if rates else None, None]
    applied = network({**OFFICES, "queue": "20 packets"}, 2).applied()
    assert [site["queue_packets"] for site in applied["sites"]] == [20, None]
    applied = network({**REGIONS, "queue": "20 packets"}, 3).applied()
    assert {path["queue_packets"] for path in applied["paths"]} == {20}


def test_half_of_its_latency_belongs_to_each_site() -> None:
    assert network(OFFICES, 4).latency_s == ((0.0, 0.010), (0.010, 0.0))


def test_regions_are_sites_with_the_published_paths() -> None:
    found = network(REGIONS, 6)
    assert found.names == ("oregon", "virginia", "tokyo")
    assert (found.up, found.down) == ((None,) * 3, (None,) * 3)
    assert [line.rate_bps for line in found.route(2, 0)] == [523e6]
    assert found.latency_s[1][2] == 0.0715
    counted = Link.model_validate({"bandwidth": "1 Gbit/s", "regions": {"ohio": 1, "seoul": 3}})
    assert [site.nodes for site in counted.sites] == [1, 3]


def test_every_pair_of_published_regions_has_a_path() -> None:
    known = published_regions()
    assert len(known) == 10
    assert sum(map(len, known.values())) == 45


def test_a_link_with_sites_comes_back_from_its_record() -> None:
    for asked in (OFFICES, REGIONS):
        link = Link.model_validate(asked)
        recorded = link.model_dump(mode="json", by_alias=True)
        assert "regions" not in recorded
        assert Link.recorded(recorded) == link


def test_slow_motion_scales_every_line() -> None:
    made, asked = Link.model_validate(OFFICES).dilated(4).site_network(4), network(OFFICES, 4)
    assert made is not None
    assert [line.rate_bps * 4 for line in made.lines] == [line.rate_bps for line in asked.lines]
    assert [line.queue_bytes for line in made.lines] == [line.queue_bytes for line in asked.lines]
    assert made.latency_s[0][1] == pytest.approx(0.040)
    written = Link.model_validate(OFFICES).dilated(4).model_dump(mode="json", by_alias=True)
    assert written["sites"][0] | {"nodes": None} == {
        "name": "bern", "nodes": None, "bandwidth": None, "up": "12.5 Mbit/s", "down": "50 Mbit/s", "latency": "32 ms",
        "queue": None,
    }  # fmt: skip
    path = Link.model_validate(REGIONS).dilated(4).model_dump(mode="json", by_alias=True)["paths"]["between"]["oregon"]
    assert path["tokyo"] == {"bandwidth": "130.75 Mbit/s", "latency": "192 ms"}


def test_netem_says_that_it_cannot() -> None:
    link = Link.model_validate(OFFICES)
    assert choose(link, netem_available=True)[0] == "relay"
    with pytest.raises(ConfigError, match="backend: netem cannot do 'sites'"):
        choose(link.model_copy(update={"backend": "netem"}), netem_available=True)


def test_super_packets_are_short_enough_for_the_slowest_line() -> None:
    plain = Link.model_validate({"bandwidth": "1 Gbit/s"})
    assert super_packet_bytes(plain, 6) == 61_440
    assert super_packet_bytes(Link.model_validate(REGIONS), 6) == int(523e6 / 8 * 0.0005)
    slow = {**OFFICES, "sites": {"bern": {"bandwidth": "10 Mbit/s"}, "oslo": {"bandwidth": "10 Mbit/s"}}}
    assert super_packet_bytes(Link.model_validate(slow), 6) is None


def test_frozen_defaults_know_the_keys_of_sites() -> None:
    site = Link.model_validate(OFFICES).model_dump(mode="json", by_alias=True)["sites"][0]
    assert site.keys() - DEFAULTS["link.sites.*"].keys() == {"name"}


@pytest.mark.parametrize(
    "asked, text",
    [
        ({"sites": {"a": {"bandwidth": "1 Mbit/s"}}}, "sites: one site has no other to send to"),
        ({"sites": {"a": {"bandwidth": "1 Mbit/s"}, "b": {}}}, "sites.b: site 'b' needs a line: 'bandwidth: 1"),
        ({"sites": {"a": {"bandwidth": "1 Mbit/s", "nodes": 0}, "b": None}}, "sites.a.nodes: 0 is out of range"),
        ({"sites": {"a": {"bandwidth": 10}, "b": None}}, "sites.a.bandwidth: 10 has no unit"),
        ({"sites": {"a": 3, "b": None}}, "sites.a: 3 is no site; write 'a: {nodes: 2, bandwidth: 100 Mbit/s}'"),
        ({"sites": ["a", "a"], "paths": {"a": {}}}, "sites: two sites are called 'a'"),
        ({"paths": {"a": {"b": "10 Mbit/s 5 ms"}}}, "paths: 'paths' lead from site to site; name these"),
        ({"sites": ["a", "b"], "paths": {"a": {"b": "10 5 ms"}}}, "paths.a.b: '10 5 ms': the rate has no unit"),
        ({"sites": ["a", "b"], "paths": {"a": {"b": "10 Mbit/s 5"}}}, "'10 Mbit/s 5': the latency has no unit"),
        ({"sites": ["a", "b"], "paths": {"a": {"b": "10 Mbit/s 5 m"}}}, "'m' is not a unit of duration"),
        ({"sites": ["a", "b"], "paths": {"a": {"b": "fast"}}}, "'fast' is no path; write its rate and its one-way"),
        ({"sites": ["a", "b"], "paths": {"a": "10 Mbit/s 5 ms"}}, "paths.a: '10 Mbit/s 5 ms' is no row of paths"),
        (
            {"sites": ["a", "b"], "paths": {"file": "ok.csv", "between": {"a": {"b": "10 Mbit/s 5 ms"}}}},
            "paths: 'file' and 'between' both say what the paths are; leave one of them out",
        ),
        ({"sites": {"file": {"bandwidth": "1 Mbit/s"}, "b": None}}, "sites.file.name: a site cannot be called 'file'"),
        ({"sites": ["a", "between"]}, "sites.1.name: a site cannot be called 'between', which is a key of 'paths'"),
        ({"regions": ["oregon", "tokio"]}, "there is no 'tokio'. Did you mean 'tokyo'?"),
        ({"regions": ["ohio", "ohio"]}, "names one twice; say how many nodes it has"),
        ({"regions": 3}, "is no list of names; write [oregon, virginia]"),
        ({"regions": ["ohio", "seoul"], "sites": ["a"]}, "leave sites out"),
    ],
)  # fmt: skip
def test_what_is_refused(asked: dict[str, Any], text: str) -> None:
    assert text in refusal(**asked)


def test_refusals_of_several_things() -> None:
    found = dict(
        refusals(
            sites={"a": {"latency": "5 ms"}, "b": {}, "c": {}},
            paths={"a": {"b": "1 Mbit/s 5 ms", "d": "1 Mbit/s 5 ms"}},
        )
    )
    assert "'paths' say how far sites are" in found["sites", "a", "latency"]
    assert "no site 'd'" in found["paths", "a"]
    assert found["paths",].startswith("no path between 'b' and 'c'; add 'b: {c: 100 Mbit/s 20 ms}'")
    line = {"bandwidth": "1 Mbit/s"}
    shared = dict(refusals(medium="shared", mtu=9000, sites={"a": line, "b": {**line, "queue": "2 kB"}}))
    assert "it has to hold one frame (9014 B)" in shared["sites", "b", "queue"]
    assert "leave 'medium: shared' out" in shared["sites",]


def test_what_lines_of_sites_cannot_do_yet() -> None:
    sites = {"a": {"bandwidth": "1 Mbit/s"}, "b": {"bandwidth": "1 Mbit/s", "queue": "fq_codel"}}
    found = dict(
        refusals(
            sites=sites,
            queue={"discipline": "pie"},
            overrides={0: {"queue": "codel"}, 1: {"queue": "30 ms"}},
            cross_traffic="video",
            handover={"extra": "30 ms"},
            demand={"least": 0.3},
        )
    )
    assert found["cross_traffic",] == "'cross_traffic' does not go with 'sites' yet; leave it out, or the sites"
    assert found["queue",].startswith("a queue that pie manages does not go with 'sites' yet; write its size alone")
    others = {("handover",), ("demand",), ("overrides", "0", "queue"), ("sites", "b", "queue")}
    assert found.keys() == {("cross_traffic",), ("queue",), *others}


def test_unshaped_takes_no_sites() -> None:
    with pytest.raises(ValidationError, match="here: sites"):
        Link.model_validate(
            {"shaped": False, "sites": {"a": {"bandwidth": "1 Mbit/s"}, "b": {"bandwidth": "1 Mbit/s"}}}
        )


MATRIX = """# measured on a Monday
,bern,oslo,rome
bern,-,100 Mbit/s 20 ms,80 Mbit/s 10 ms

oslo,50 Mbit/s 25 ms,,60 Mbit/s 30 ms
rome,,,
"""


def frozen(text: str, folder: Path, *sites: str) -> Link:
    (folder / "wan.csv").write_text(text)
    asked = {"bandwidth": "1 Gbit/s", "sites": list(sites or ("bern", "oslo", "rome")), "paths": "wan.csv"}
    return freeze_link(Link.model_validate(asked), folder)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_matrix_from_a_file(delimiter: str, tmp_path: Path) -> None:
    link = frozen(MATRIX.replace(",", delimiter), tmp_path)
    found = link.site_network(3)
    assert found is not None
    assert [[line and line.rate_bps for line in row] for row in found.paths] == [
        [None, 100e6, 80e6],
        [50e6, None, 60e6],
        [80e6, 60e6, None],
    ]
    assert found.latency_s == ((0.0, 0.020, 0.010), (0.025, 0.0, 0.030), (0.010, 0.030, 0.0))
    assert link.paths is not None and link.paths.file is None
    assert freeze_link(link, tmp_path) == link


def test_some_sites_of_a_matrix(tmp_path: Path) -> None:
    found = frozen(MATRIX, tmp_path, "rome", "oslo").site_network(2)
    assert found is not None
    assert found.latency_s == ((0.0, 0.030), (0.030, 0.0))


def test_paths_that_nobody_has_read(tmp_path: Path) -> None:
    link = Link.model_validate({"bandwidth": "1 Gbit/s", "sites": ["a", "b"], "paths": "wan.csv"})
    with pytest.raises(ValueError, match="freeze_link"):
        link.site_network(2)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "wan.csv: the file is empty"),
        ("bern,oslo\n", "wan.csv:1: the first line has to name two places"),
        (",bern,bern\n", "wan.csv:1: 'bern' stands twice"),
        (MATRIX.replace("rome,,,\n", ""), "wan.csv:5: there is no row 'rome': a matrix of paths is square"),
        (MATRIX.replace("rome,,,", "rome,,"), "wan.csv:6: row 'rome' has 2 cells, and there are 3 columns"),
        (MATRIX.replace("rome,,,", "roma,,,"), "wan.csv:6: row 'roma' is no column. Did you mean 'rome'?"),
        (MATRIX.replace("rome,,,", "oslo,,,"), "wan.csv:6: row 'oslo' stands twice, first in line 5"),
        (MATRIX.replace("80 Mbit/s 10 ms", ""), "wan.csv:3: no path between 'bern' and 'rome'"),
        (MATRIX.replace("80 Mbit/s", "80"), "wan.csv:3: from 'bern' to 'rome': '80 10 ms': the rate has no unit"),
        (MATRIX.replace("bern,-", "bern,1 Mbit/s 1 ms"), "wan.csv:3: 'bern' has no path to itself"),
        (MATRIX.replace("rome", "roma"), "wan.csv: there is no row for site 'rome'. Did you mean 'roma'?"),
    ],
)
def test_a_matrix_that_is_none(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        frozen(text, tmp_path)
    assert message in str(error.value)


def test_a_matrix_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "wan.tsv").write_text(MATRIX)
    link = Link.model_validate({"bandwidth": "1 Gbit/s", "sites": ["bern", "oslo"], "paths": "wan.csv"})
    with pytest.raises(ConfigError, match=r"paths wan.csv: no such file. Did you mean 'wan.tsv'\?"):
        freeze_link(link, tmp_path)
    (tmp_path / "wan.csv").write_bytes(b",bern,oslo\nbern,\xff,\n")
    with pytest.raises(ConfigError, match="wan.csv:2: byte 0xff is not UTF-8"):
        freeze_link(link, tmp_path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: os.mkfifo(path), "matrix of paths wan.csv: is no regular file; name a file with names and rows"),
        (lambda path: path.mkdir(), "matrix of paths wan.csv: is a folder; name a file with names and rows"),
        (lambda path: path.write_bytes(b",a\n" * (1 << 19)), "wan.csv: larger than 1 MiB: no matrix of paths is that"),
        (lambda path: path.write_bytes(b",a\0,b\n"), "wan.csv: is no text file: it contains NUL bytes"),
        (lambda path: path.write_text("# nothing\n"), "wan.csv: has remarks alone; a matrix of paths has names and"),
    ],
)
def test_files_that_cannot_be_matrices(make: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    make(tmp_path / "wan.csv")
    link = Link.model_validate({"bandwidth": "1 Gbit/s", "sites": ["bern", "oslo"], "paths": "wan.csv"})
    with pytest.raises(ConfigError) as error:
        freeze_link(link, tmp_path)
    assert message in str(error.value)


def test_paths_are_written_down_in_both_directions(tmp_path: Path) -> None:
    path, sites = "100 Mbit/s 10 ms", ["bern", "oslo"]
    given = [{"bern": {"oslo": path}}, {"oslo": {"bern": path}}, {"oslo": {"bern": path}, "bern": {"oslo": path}}]
    links = [Link.model_validate({"bandwidth": "1 Gbit/s", "sites": sites, "paths": paths}) for paths in given]
    (tmp_path / "wan.csv").write_text(f",bern,oslo\nbern,,{path}\noslo,,\n")
    asked = {"bandwidth": "1 Gbit/s", "sites": sites, "paths": "wan.csv"}
    links.append(freeze_link(Link.model_validate(asked), tmp_path))
    assert all(link == links[0] for link in links)
    assert links[0].paths is not None and {*links[0].paths.between} == {"bern", "oslo"}


def test_an_unknown_site_is_said_once_where_it_is_written() -> None:
    found = refusals(sites=["a", "b"], paths={"a": {"b": "1 Mbit/s 5 ms"}, "b": {"c": "1 Mbit/s 5 ms"}})
    assert [(place, text.split(".")[0]) for place, text in found] == [(("paths", "b"), "there is no site 'c'")]


def test_words_of_a_link_span_its_sites() -> None:
    offices, regions = Link.model_validate(OFFICES), Link.model_validate(REGIONS)
    inside = "1 Gbit/s, 100 us one way (RTT 200 us), switched"
    assert offices.describe() == f"{inside}, 2 sites (bern, oslo): 50 to 100 Mbit/s, RTT 20.2 ms between them"
    words = "3 sites (oregon, virginia, tokyo): 523 to 790 Mbit/s, RTT 67 to 143 ms between them"
    assert regions.describe(short=True) == f"1 Gbit/s, RTT 0 us, switched, {words}"
    assert offices.in_brief == "1 Gbit/s, 100 us one way, 2 sites"
    assert "12.5 to 25 Mbit/s, RTT 80.8 ms between them" in offices.dilated(4).describe()
    slow = Link.model_validate({**REGIONS, "bandwidth": "600 Mbit/s"})  # of the nodes themselves
    assert "523 to 600 Mbit/s" in slow.describe()
    plain = Link.model_validate({"bandwidth": "1 Gbit/s", "latency": "0.1 ms"})
    assert (plain.describe(), plain.in_brief) == (inside, "1 Gbit/s, 100 us one way")


def test_the_farthest_round_trip_is_that_between_sites() -> None:
    assert Link.model_validate(OFFICES).farthest_rtt_s == pytest.approx(0.0202)
    assert Link.model_validate(REGIONS).farthest_rtt_s == pytest.approx(0.143)
    assert Link.model_validate({"bandwidth": "1 Gbit/s", "latency": "1 ms"}).farthest_rtt_s == 0.002
    unread = Link.model_validate({"bandwidth": "1 Gbit/s", "latency": "1 ms", "sites": ["a", "b"], "paths": "wan.csv"})
    assert (unread.farthest_rtt_s, unread.describe().rpartition("switched, ")[2]) == (0.002, "2 sites (a, b)")
