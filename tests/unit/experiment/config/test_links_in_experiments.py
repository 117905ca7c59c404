"""Presets, traces and nodes that differ, as experiments name them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.config.method_names import arm_name
from bwbench.records.cell_identity import identity

EXPERIMENT = """\
name: links
nodes: 4
link: LINK
model: mlp
"""
TRACE = "".join(f"{second}\t{rate}\n" for second, rate in enumerate([10, 20, 30, 20]))


def write(folder: Path, link: str, more: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "office.tsv").write_text(TRACE)
    (folder / "mine.yaml").write_text("office: {link: {trace: office.tsv, latency: 3 ms}}\n")
    path = folder / "exp.yaml"
    path.write_text(EXPERIMENT.replace("LINK", link) + more)
    return path


def problems_of(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    return [str(problem) for problem in caught.value.problems]


def test_a_preset_with_a_key_on_top(tmp_path: Path) -> None:
    (point,) = load_experiment(write(tmp_path / "a", "{preset: lan-1g, latency: 9 ms}")).points
    assert (point.config.link.bandwidth_bps, point.config.link.latency_s) == (1e9, 0.009)


def test_presets_are_an_axis(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "{preset: lan-1g}", "matrix:\n  link.preset: [lan-1g, wifi-802.11g-good]\n")
    assert [point.config.link.medium for point in load_experiment(path).points] == ["switched", "shared"]


@pytest.mark.parametrize("link", ["{trace: office.tsv, latency: 3 ms}", "{preset: 'mine.yaml:office'}"])
def test_a_trace_lies_beside_the_file_and_counts_by_its_content(tmp_path: Path, link: str) -> None:
    (here,) = load_experiment(write(tmp_path / "a", link)).points
    mean_bps = 20e6 * 1514 / 1448  # the file says what TCP made of it
    assert here.config.link.node(0).up_bps == pytest.approx(mean_bps)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (there,) = load_experiment(tmp_path / "b" / "exp.yaml").points
    assert here.config.link != there.config.link
    assert identity(here.config) == identity(there.config)
    (tmp_path / "b" / "office.tsv").write_text(TRACE.replace("30", "31"))
    (changed,) = load_experiment(tmp_path / "b" / "exp.yaml").points
    assert identity(changed.config) != identity(here.config)


def test_an_mtu_counts_where_it_is_not_the_usual_one(tmp_path: Path) -> None:
    plain, usual, jumbo = (
        load_experiment(write(tmp_path / str(number), f"{{bandwidth: 10 Mbit/s{more}}}")).points[0].config
        for number, more in enumerate(("", ", mtu: 1500", ", mtu: 9000"))
    )
    assert identity(plain) == identity(usual) != identity(jumbo)
    assert (plain.link.mtu, jumbo.link.mtu) == (1500, 9000) and "MTU 9000" in jumbo.link.describe()


@pytest.mark.parametrize(
    "link, words",
    [
        ("{trace: nowhere.tsv}", ["link.trace", "nowhere.tsv", "no such file"]),
        ("{preset: wifi-802.11nn}", ["wifi-802.11nn", "Did you mean"]),
        ("{preset: 'mine.yaml:ofice'}", ["ofice", "mine.yaml", "'office'"]),
        ("{preset: 'none.yaml:office'}", ["none.yaml", "no such file"]),
        ("{bandwidth: 1 Mbit/s, overrides: {4: {latency: 1 ms}}}", ["link.overrides", "no node 4", "0 to 3"]),
        ("{bandwidth: 1 Mbit/s, overrides: {3: {latnecy: 1 ms}}}", ["link.overrides.3", "latnecy", "latency"]),
        ("{bandwidth: 1 Mbit/s, overrides: {x: {latency: 1 ms}}}", ["link.overrides", "'x'"]),
        ("{bandwidth: 1 Mbit/s, outages: [{at: 1 s, duration: 1 s, nodes: [7]}]}", ["link.outages", "no node 7"]),
        ("{bandwidth: 1 Mbit/s, medium: shared, wired: [0, 1, 2, 3]}", ["link.wired", "nobody is on the air"]),
        ("{bandwidth: 1 Mbit/s, tcp: {congestion_control: BBR!}}", ["link.tcp.congestion_control", "BBR!"]),
        ("{bandwidth: 1 Mbit/s, mtu: 575}", ["link.mtu", "575", "576"]),
        ("{bandwidth: 1 Mbit/s, mtu: 65001}", ["link.mtu", "65001", "65000"]),
        ("{bandwidth: 1 Mbit/s, mtu: 9000, queue: 2 kB}", ["2000 B is too small", "9014 B where 'mtu' is 9000"]),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, link: str, words: list[str]) -> None:
    path = write(tmp_path / "a", link)
    (problem,) = problems_of(path)
    assert problem.startswith(f"{path}:3: ")
    assert all(word in problem for word in words), problem


def test_a_line_of_a_trace_is_named_with_its_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "{trace: office.tsv}")
    (tmp_path / "a" / "office.tsv").write_text("0\t10\n1\tfast\n")
    (problem,) = problems_of(path)
    assert "office.tsv:2" in problem and "fast" in problem


MATRIX = ",bern,oslo\nbern,,100 Mbit/s 20 ms\noslo,,\n"


def test_paths_lie_beside_the_file_and_count_by_their_content(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "{bandwidth: 1 Gbit/s, sites: [bern, oslo], paths: wan.csv}")
    (tmp_path / "a" / "wan.csv").write_text(MATRIX)
    (read,) = load_experiment(path).points
    inline = "{bandwidth: 1 Gbit/s, sites: [bern, oslo], paths: {bern: {oslo: 100 Mbit/s 20 ms}}}"
    (written,) = load_experiment(write(tmp_path / "b", inline)).points
    assert identity(read.config) == identity(written.config)
    (tmp_path / "a" / "wan.csv").write_text(MATRIX.replace("20 ms", "30 ms"))
    (changed,) = load_experiment(path).points
    assert identity(read.config) != identity(changed.config)


def test_the_order_of_sites_counts(tmp_path: Path) -> None:
    links = ["{bandwidth: 1 Gbit/s, regions: [ohio, seoul]}", "{bandwidth: 1 Gbit/s, regions: [seoul, ohio]}"]
    (here,), (there,) = (load_experiment(write(tmp_path / "a", link)).points for link in links)
    assert identity(here.config) != identity(there.config)


def test_hierarchical_follows_the_sites(tmp_path: Path) -> None:
    link = "{bandwidth: 1 Gbit/s, regions: {ohio: 1, seoul: 3}}"
    more = "matrix:\n  collective: [hierarchical, {hierarchical: {workers_per_host: 2}}, ring]\n"
    points = load_experiment(write(tmp_path / "a", link, more)).points
    found = [point.config.collective.to_json().get("sites") for point in points]
    assert found == [[1, 3], [], None]
    names = [arm_name(point.config) for point in points]
    assert names == ["hierarchical", "hierarchical(workers_per_host=2)", "ring"]


@pytest.mark.parametrize(
    ("link", "text"),
    [
        ("{bandwidth: 1 Gbit/s, regions: [ohio, seoul, tokyo, london, sydney]}", "leave sydney without any; take 5"),
        ("{bandwidth: 1 Gbit/s, regions: {ohio: 1, seoul: 1}}", "the sites have 2 nodes (ohio 1, seoul 1)"),
        ("{bandwidth: 1 Gbit/s, regions: [ohio, soul]}", "there is no 'soul'. Did you mean 'seoul'?"),
        ("{bandwidth: 1 Gbit/s, sites: {a: {nodes: 0}, b: {bandwidth: 1 Mbit/s}}}", "sites.a.nodes: 0 is out of range"),
        ("{bandwidth: 1 Gbit/s, sites: [bern, oslo], paths: wan.csv}", "wan.csv:2: from 'bern' to 'oslo': '100 20 "),
        ("{backend: netem, bandwidth: 1 Gbit/s, regions: [ohio, seoul]}", "backend: netem cannot do 'sites'"),
        ("{bandwidth: 1 Gbit/s, regions: [ohio, seoul], queue: codel}", "link.queue: a queue that codel manages does"),
        ("{bandwidth: 1 Gbit/s, regions: [ohio, seoul], demand: {least: 30 %}}", "link.demand: 'demand' does not go"),
        (
            "{bandwidth: 1 Gbit/s, regions: [ohio, seoul], overrides: {1: {queue: codel}}}",
            "link.overrides.1.queue: a queue that codel manages does",
        ),
    ],
)  # fmt: skip
def test_sites_that_do_not_go(tmp_path: Path, link: str, text: str) -> None:
    path = write(tmp_path / "a", link)
    (tmp_path / "a" / "wan.csv").write_text(MATRIX.replace(" Mbit/s", ""))
    (problem,) = problems_of(path)
    assert problem.startswith(f"{path}:3: ")
    assert text in problem


def test_auto_dilation_leaves_sites_that_do_not_go_to_those_who_say_so(tmp_path: Path) -> None:
    more = "dilation: auto\ncompute: {step_time: 100 ms}\n"
    (problem,) = problems_of(write(tmp_path / "a", "{bandwidth: 1 Gbit/s, regions: {ohio: 1, seoul: 1}}", more))
    assert "the sites have 2 nodes (ohio 1, seoul 1), and there are 4" in problem


@pytest.mark.parametrize(
    ("regions", "line", "text"),
    [
        ("[ohio: 2, seoul: 2]", 5, 'link.regions: [{"ohio": 2}, {"seoul": 2}] is no list of names; write [oregon, '),
        ("{ohio: 2,\n seoul: two}", 6, "link.regions.seoul: 'two' is no number of nodes; write 1 or more, like "),
        ("{ohio: 4,\n soul: 1}", 6, "link.regions.soul: there is no 'soul'. Did you mean 'seoul'?"),
        ("{ohio: 4, seoul: 0}", 5, "link.regions.seoul: 0 is no number of nodes"),
        ("{ohio: 4, seoul: null}", 5, "link.regions: seoul without a number of nodes, and others with"),
        ("[]", 5, "link.regions: []: paths lead from one region to another; name two or more, like [oregon"),
        ("[ohio]", 5, 'link.regions: ["ohio"]: paths lead from one region to another; name two or more'),
    ],
)
def test_regions_that_are_none_are_said_at_their_line(tmp_path: Path, regions: str, line: int, text: str) -> None:
    path = write(tmp_path / "a", f"\n bandwidth: 1 Gbit/s\n regions: {regions}".replace("\n ", "\n    "))
    (problem,) = problems_of(path)
    assert problem.startswith(f"{path}:{line}: ")
    assert text in problem


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("0 Mbit/s 10 ms", "wan.csv:2: from 'bern' to 'oslo': '0 Mbit/s' is out of range: it must be 1 kbit/s or more"),
        ("10 Mbit/s 100 h", "wan.csv:2: from 'bern' to 'oslo': '100 h' is out of range: at most 1 min"),
    ],
)
def test_a_path_out_of_range_is_said_with_its_line(tmp_path: Path, path: str, text: str) -> None:
    file = write(tmp_path / "a", "{bandwidth: 1 Gbit/s, sites: [bern, oslo], paths: wan.csv}")
    (tmp_path / "a" / "wan.csv").write_text(MATRIX.replace("100 Mbit/s 20 ms", path))
    (problem,) = problems_of(file)
    assert problem.startswith(f"{file}:3: link.paths: {text}")


@pytest.mark.parametrize("key", ["paths", "trace"])
def test_a_folder_of_nobody_is_no_such_file(tmp_path: Path, key: str) -> None:
    rates = "sites: [bern, oslo], bandwidth: 1 Gbit/s" if key == "paths" else "latency: 3 ms"
    (problem,) = problems_of(write(tmp_path / "a", f"{{{rates}, {key}: ~no-such-user/wan.csv}}"))
    assert f"link.{key}: " in problem and "wan.csv: no such file. There is no folder" in problem


def test_sites_are_for_emulated_nodes(tmp_path: Path) -> None:
    more = "launcher: ssh\nhosts: [a@10.0.0.1, b@10.0.0.2, c@10.0.0.3, d@10.0.0.4]\n"
    problems = problems_of(write(tmp_path / "a", "{bandwidth: 1 Gbit/s, regions: [ohio, seoul]}", more))
    assert any("link.sites: launcher 'ssh' has the hosts' kernels shape" in problem for problem in problems)
