"""``bwbench link show`` and ``presets``: what they say of a link without making one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bwbench.base.errors import ConfigError
from bwbench.cli.link.link_commands import app
from bwbench.cli.link.shown_link import expected_of_nodes, expected_of_pairs
from bwbench.network.link import UNSHAPED, Link


def invoke(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


def show_json(*words: str) -> dict:  # type: ignore[type-arg]
    return json.loads(invoke("show", "--json", *words).stdout)


def test_a_switched_link() -> None:
    link = Link(bandwidth="10 Mbit/s", latency="5 ms", queue="64 kB", overrides={1: {"up": "1 Mbit/s"}})
    nodes = expected_of_nodes(link, 2)
    assert [node.up and node.up.bps for node in nodes] == [10e6, 1e6]
    assert [node.up and node.up.queue_s for node in nodes] == pytest.approx([0.0512, 0.512])
    there, back = expected_of_pairs(link, 2)
    frame_s = 1514 * 8 / 10e6
    assert there.full_frame_s == pytest.approx(0.005 + 2 * frame_s)
    assert back.full_frame_s == pytest.approx(0.005 + 11 * frame_s)
    assert there.udp_goodput_alone_bps == pytest.approx(10e6 * 1472 / 1514)
    assert back.tcp_goodput_alone_bps == pytest.approx(1e6 * 1448 / 1514)
    assert there.rtt_s == pytest.approx(0.0106, abs=0.0005)


def test_a_shared_air_with_a_wired_node() -> None:
    link = Link(bandwidth="54 Mbit/s", medium="shared", standard="802.11g", wired=[0])
    nodes = expected_of_nodes(link, 3)
    assert nodes[0].wired and nodes[0].up is None and nodes[1].up is not None and nodes[1].up.bps == 54e6
    wired, stations, _ = expected_of_pairs(link, 3)
    assert wired.udp_goodput_alone_bps == pytest.approx(27e6 * 1472 / 1514)
    assert stations.udp_goodput_alone_bps == pytest.approx(13.5e6 * 1472 / 1514)
    assert stations.full_frame_s == pytest.approx(2 * 1514 * 8 / 27e6)
    two_wired = expected_of_pairs(Link(bandwidth="54 Mbit/s", medium="shared", wired=[0, 1]), 3)[0]
    assert two_wired.udp_goodput_alone_bps is None


def test_nothing_is_expected_of_an_unshaped_link() -> None:
    assert expected_of_nodes(UNSHAPED, 2) == expected_of_pairs(UNSHAPED, 2) == []


def test_json_holds_all_of_it() -> None:
    content = show_json("--bandwidth", "10 Mbit/s", "--nodes", "3")
    assert len(content["nodes"]) == len(content["pairs"]) == 3
    assert content["backend"] in ("relay", "netem") and content["backend_reason"]
    assert content["tc_refusal"] is None
    assert any("qdisc add" in line and "rate 10000000bit" in line for line in content["tc"])
    assert Link.model_validate(content["link"]) == Link(bandwidth="10 Mbit/s")


def test_what_netem_cannot_do_is_said_in_place_of_commands() -> None:
    content = show_json("--bandwidth", "54 Mbit/s", "--medium", "shared", "--backend", "netem")
    assert content["tc"] is None and "shared" in content["tc_refusal"]
    assert content["backend"] is None and "netem cannot do" in content["backend_reason"]


def test_netem_is_shown_where_the_kernel_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bwbench.cli.link.shown_link.netem_available", lambda: False)
    output = invoke("show", "--bandwidth", "10 Mbit/s", "--backend", "netem").stdout
    assert "no sch_netem" in output and "qdisc add" in output


def test_tables_name_alike_nodes_once() -> None:
    output = invoke("show", "--bandwidth", "10 Mbit/s", "--nodes", "4", "--override", "2:loss=0.1").stdout
    lines = output.splitlines()
    assert [line.split("  ")[0] for line in lines if line.startswith(("0, 1, 3 ", "2 "))] == ["0, 1, 3", "2"]
    assert "each" in invoke("show", "--bandwidth", "10 Mbit/s").stdout


def test_the_mean_of_a_trace_and_settings_of_tcp_are_shown(tmp_path: Path) -> None:
    trace = tmp_path / "a.tsv"
    trace.write_text("0\t4\n1\t8\n")
    output = invoke("show", "--trace", str(trace), "--congestion-control", "reno").stdout
    assert "(mean)" in output and "congestion control: reno" in output
    assert "none" not in output.splitlines()[1] and "relay" in output.splitlines()[1]


def test_an_unshaped_link_has_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "link.yaml"
    path.write_text("link: unshaped\n")
    output = invoke("show", "--link", str(path)).stdout
    assert "unshaped" in output and "node  " not in output


@pytest.mark.parametrize("nodes", ["0", "255", "-1"])
def test_a_number_of_nodes_out_of_range(nodes: str) -> None:
    with pytest.raises(ConfigError, match="1 to 254"):
        invoke("show", "--bandwidth", "1 Mbit/s", "--nodes", nodes)


def test_presets_are_listed_with_their_sources() -> None:
    rows = json.loads(invoke("presets", "--json").stdout)
    assert {"wifi-802.11n-good", "dsl", "lan-1g"} <= {row["name"] for row in rows}
    table, sources = invoke("presets").stdout, invoke("presets", "--sources").stdout
    for row in rows:
        assert row["name"] in table and row["source"] in sources


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "--to HOST"),
        (["--to", "x", "--listen"], "--to HOST"),
        (["--to", "x", "--duration", "3"], "--duration: '3' has no unit"),
        (["--to", "x", "--duration", "1.5 s"], "--duration: 1.5 s"),
        (["--to", "x", "--direction", "left"], "--direction: 'left'"),
        (["--to", "127.0.0.1", "--port", "0"], "--port: 0"),
        (["--listen", "--duration", "0 s"], "--duration: 0 s"),
        (["--listen", "--token", "a b"], "--token: 'a b'"),
    ],
)
def test_recordings_that_cannot_be_made(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        invoke("record", *words)
    assert message in str(caught.value)


def test_an_outage_of_some_nodes_is_asked_for_on_the_command_line() -> None:
    shown = invoke("show", "--bandwidth", "1 Mbit/s", "--outage", "at=1 s,duration=2 s,nodes=0+2", "--json").stdout
    assert json.loads(shown)["link"]["outages"][0]["nodes"] == [0, 2]
    with pytest.raises(ConfigError, match="--outage: nodes.1: 'x' is not a whole number"):
        invoke("show", "--bandwidth", "1 Mbit/s", "--outage", "at=1 s,duration=2 s,nodes=0+x")


SITES = """\
bandwidth: 1 Gbit/s
latency: 0.1 ms
sites:
  bern: {up: 50 Mbit/s, down: 200 Mbit/s, latency: 8 ms}
  oslo: {bandwidth: 100 Mbit/s, latency: 12 ms, queue: 30 packets}
"""


def test_sites_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "offices.yaml").write_text(SITES)
    text = invoke("show", "--link", str(tmp_path / "offices.yaml"), "--nodes", "4").stdout
    assert "bern    2 nodes (0, 1); among them 1 Gbit/s, 100 us\n" in text
    assert "  │     shared: up 50 Mbit/s (queue 312.5 kB, 50 ms), down 200 Mbit/s (queue 1250 kB, 50 ms)\n" in text
    assert "  └───▶ oslo: 50 Mbit/s, 10.1 ms one way\n" in text
    assert "shared: up 100 Mbit/s (queue 30 packets, 3.634 ms)" in text
    assert "there are no tc commands for this link: netem cannot do 'sites'" in text


def test_a_way_between_sites_is_no_faster_than_the_nodes_themselves(tmp_path: Path) -> None:
    slow = SITES.replace("1 Gbit/s", "20 Mbit/s")
    (tmp_path / "offices.yaml").write_text(slow)
    text = invoke("show", "--link", str(tmp_path / "offices.yaml"), "--nodes", "4").stdout
    assert "  └───▶ oslo: 20 Mbit/s, 10.1 ms one way\n" in text
    (tmp_path / "offices.yaml").write_text(slow.replace("bandwidth: 20 Mbit/s", "up: 60 Mbit/s\ndown: 30 Mbit/s", 1))
    text = invoke("show", "--link", str(tmp_path / "offices.yaml"), "--nodes", "4").stdout
    assert "  └───▶ oslo: 30 Mbit/s, 10.1 ms one way\n" in text


def test_sites_as_json(tmp_path: Path) -> None:
    (tmp_path / "regions.yaml").write_text("{bandwidth: 1 Gbit/s, regions: {ohio: 1, seoul: 2}}")
    shown = show_json("--link", str(tmp_path / "regions.yaml"), "--nodes", "3")
    assert [(site["name"], site["nodes"], site["up_bps"]) for site in shown["sites"]] == [
        ("ohio", [0], None),
        ("seoul", [1, 2], None),
    ]
    assert [(path["src"], path["dst"], path["bandwidth_bps"], path["latency_s"]) for path in shown["paths"]] == [
        ("ohio", "seoul", 529e6, 0.0795),
        ("seoul", "ohio", 529e6, 0.0795),
    ]
    assert {(pair["src"], pair["dst"]) for pair in shown["pairs"]} == {(0, 1), (1, 0), (1, 2), (2, 1)}
    frame_s = 1514 * 8 * (2 / 1e9 + 1 / 529e6)
    assert next(pair for pair in shown["pairs"] if pair["dst"] == 0)["full_frame_s"] == pytest.approx(0.0795 + frame_s)


def test_what_is_wrong_with_sites_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "offices.yaml").write_text(SITES.replace("100 Mbit/s", "100"))
    with pytest.raises(ConfigError, match=r"offices.yaml:5: link.sites.oslo.bandwidth: 100 has no unit"):
        invoke("show", "--link", str(tmp_path / "offices.yaml"))
    (tmp_path / "offices.yaml").write_text("link: {bandwidth: 1 Gbit/s, regions: [ohio, seoul, tokyo]}")
    with pytest.raises(ConfigError, match=r"offices.yaml:1: link.sites: 2 nodes in 3 sites leave tokyo without any"):
        invoke("show", "--link", str(tmp_path / "offices.yaml"), "--nodes", "2")
