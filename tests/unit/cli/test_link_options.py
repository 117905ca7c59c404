"""From options to a link: what they mean, what stands on top of what, and what is said of wrong ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.cli.link.link_options import LinkOptions
from bwbench.cli.link.read_link import read_link
from bwbench.network.link import Link

JUNK = (
    "",
    " ",
    "x",
    "-1",
    "1e999",
    "nan",
    "10 Mbit/s ms",
    "0 ms",
    "3:",
    ":",
    "=",
    "1=2",
    "a=b,c",
    "{}",
    "\x00",
    "é" * 300,
)


def link(num_nodes: int = 4, **options: object) -> Link:
    return read_link(LinkOptions(**options), num_nodes)  # type: ignore[arg-type]


def refusal(num_nodes: int = 4, **options: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        link(num_nodes, **options)
    return [str(problem) for problem in caught.value.problems]


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "office.tsv"
    path.write_text("0\t4\n1\t8\n2\t6\n")
    return path


def test_a_file_without_a_rate_is_told_what_to_write_in_it(tmp_path: Path) -> None:
    (file := tmp_path / "cloud.yaml").write_text("link:\n  regions: [oregon, tokyo]\n")
    (said,) = refusal(link_file=str(file))
    assert "cloud.yaml:" in said and "Write 'bandwidth: 10 Mbit/s'" in said and "--link" not in said


def test_every_option_means_the_key_of_its_name() -> None:
    found = link(
        up="1 Mbit/s", down="16 Mbit/s", latency="20 ms", jitter="2 ms", jitter_kind="independent",
        jitter_distribution="uniform", reorder=True,
        loss="0.01", loss_burst="4", queue="100 packets", seed="7", backend="relay", congestion_control="reno",
        override=["3:bandwidth=2 Mbit/s,latency=40 ms", "1:jitter=0 ms"], outage=["at=5 s,duration=2 s,every=30 s"],
    )  # fmt: skip
    assert found == Link.model_validate(
        {
            "up": "1 Mbit/s", "down": "16 Mbit/s", "latency": "20 ms", "jitter": "2 ms", "reorder": True,
            "jitter_kind": "independent", "jitter_distribution": "uniform",
            "loss": 0.01, "loss_burst": 4, "queue": "100 packets", "seed": 7, "backend": "relay",
            "tcp": {"congestion_control": "reno"}, "outages": [{"at": "5 s", "duration": "2 s", "every": "30 s"}],
            "overrides": {3: {"bandwidth": "2 Mbit/s", "latency": "40 ms"}, 1: {"jitter": "0 ms"}},
        }
    )  # fmt: skip


@pytest.mark.parametrize("text", ["5%", "5 %", "0.05", "5e-2", "5.0%"])
def test_shares_may_be_percentages(text: str) -> None:
    link = read_link(
        LinkOptions(bandwidth="10 Mbit/s", loss=text, override=[f"1:loss={text}"], medium="shared", efficiency=text), 2
    )
    assert (link.loss, link.overrides[1].loss, link.efficiency) == (0.05, 0.05, 0.05)


@pytest.mark.parametrize("text", ["100%", "-1 %", "5 %%", "five %", "%"])
def test_percentages_have_the_range_of_shares(text: str) -> None:
    with pytest.raises(ConfigError, match="--loss"):
        read_link(LinkOptions(bandwidth="10 Mbit/s", loss=text), 2)


def test_options_of_a_shared_air() -> None:
    air = {"standard": "802.11n", "efficiency": "0.5", "aggregation": "8", "fairness": "airtime"}
    found = link(bandwidth="54 Mbit/s", medium="shared", wired=["0", "2"], **air)
    assert (found.medium, found.wired, found.fairness) == ("shared", (0, 2), "airtime")
    assert found.air is not None and (found.air.efficiency, found.air.aggregation) == (0.5, 8)


def test_a_trace_is_relative_to_where_one_is_and_is_read(trace: Path) -> None:
    found = link(trace="office.tsv,start=1 s")
    assert found.trace is not None and found.trace.up is not None
    assert (found.trace.up.file, found.trace.up.start_s) == (str(trace), 1.0)
    assert found.base.up_bps > 6e6


def test_what_is_wrong_in_a_trace_is_said_with_file_and_line(trace: Path) -> None:
    trace.write_text("0\t4\n1\tfast\n")
    assert refusal(trace="office.tsv")[0].startswith(f"{trace}:2: ")
    assert "no such file" in refusal(trace="nowhere.tsv")[0].lower()


def test_a_preset_needs_no_bandwidth_and_takes_options_on_top() -> None:
    assert link(preset="dsl").base.up_bps == 1e6
    assert link(preset="dsl", bandwidth="3 Mbit/s").base.up_bps == 3e6


def test_a_preset_that_does_not_exist() -> None:
    (message,) = refusal(preset="wifi-802.11n-god")
    assert message.startswith("--preset: ") and "wifi-802.11n-good" in message


@pytest.mark.parametrize("key", ["", "link: "])
def test_a_file_holds_a_link_or_an_experiment(tmp_path: Path, key: str) -> None:
    path = tmp_path / "link.yaml"
    path.write_text(f"name: office\n{key}{{up: 1 Mbit/s, down: 8 Mbit/s, latency: 3 ms}}\n" if key else "up: 1 Mbit/s\n"
                    "down: 8 Mbit/s\nlatency: 3 ms\n")  # fmt: skip
    found = link(link_file=str(path), latency="4 ms")
    assert (found.base.up_bps, found.base.down_bps, found.latency_s) == (1e6, 8e6, 0.004)
    assert link(link_file=str(path), bandwidth="5 Mbit/s").base.up_bps == 5e6


def test_nodes_that_differ_are_merged_key_by_key(tmp_path: Path) -> None:
    path = tmp_path / "link.yaml"
    path.write_text("bandwidth: 10 Mbit/s\noverrides: {1: {up: 1 Mbit/s, latency: 9 ms}, 2: {loss: 0.1}}\n")
    found = link(link_file=str(path), override=["1:bandwidth=2 Mbit/s", "3:loss=0.2"])
    assert found.node(1).up_bps == 2e6 and found.node(1).latency_s == 0.009
    assert (found.node(2).loss, found.node(3).loss) == (0.1, 0.2)


def test_a_preset_on_the_command_line_stands_above_the_file(tmp_path: Path) -> None:
    path = tmp_path / "link.yaml"
    path.write_text("link: {up: 1 Mbit/s, down: 2 Mbit/s, latency: 1 ms, seed: 5}\n")
    found = link(link_file=str(path), preset="lan-1g")
    assert (found.base.up_bps, found.base.down_bps, found.seed) == (1e9, 1e9, 5)


def test_an_unshaped_file_is_a_link_until_a_rate_is_given(tmp_path: Path) -> None:
    path = tmp_path / "link.yaml"
    path.write_text("link: unshaped\n")
    assert not link(link_file=str(path)).shaped
    assert link(link_file=str(path), bandwidth="1 Mbit/s").shaped


def test_traces_and_presets_of_a_file_are_relative_to_it(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = trace.parent / "inside"
    folder.mkdir()
    (folder / "own.yaml").write_text("attic: {link: {trace: ../office.tsv}}\n")
    (folder / "link.yaml").write_text("link: {trace: ../office.tsv}\n")
    (folder / "preset.yaml").write_text("preset: own.yaml:attic\n")
    for name in ("link.yaml", "preset.yaml"):
        found = link(link_file=f"inside/{name}")
        assert found.trace is not None and found.trace.up is not None and found.trace.up.file == str(trace)


def test_what_is_wrong_in_a_file_is_said_with_its_line_and_in_an_option_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "link.yaml"
    path.write_text("name: x\nlink:\n  bandwidth: 10 Mbit/s\n  latency: 5\n")
    messages = refusal(link_file=str(path), jitter_distribution="gauss")
    assert any(message.startswith(f"{path}:4: link.latency: ") for message in messages)
    assert any(message.startswith("--jitter-distribution: ") for message in messages)


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "link"),
        ("[1, 2]", "not a link"),
        ("bandwith: 10 Mbit/s", "'bandwidth'"),
        ("link: {latency: 3 ms}", "how fast"),
        ("link: {bandwidth: 10 Mbit/s, latncy: 3 ms}", "'latency'"),
        ("link: {bandwidth: 10 Mbit/s", "YAML"),
        ("link: wifi", "not a link"),
    ],
)
def test_files_that_hold_no_link(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "link.yaml"
    path.write_text(text)
    messages = refusal(link_file=str(path))
    assert str(path) in messages[0] and words in messages[0]


@pytest.mark.parametrize(
    "options, start, words",
    [
        ({}, "how fast", "--preset"),
        ({"up": "1 Mbit/s"}, "only one direction", "--down"),
        ({"bandwidth": "1 Mbit/s", "reorder": True}, "--reorder without --jitter", "--jitter '1 ms'"),
        ({"bandwidth": "1 Mbit/s", "wired": ["1"]}, "--wired belongs to --medium shared", ""),
        ({"bandwidth": "1 Mbit/s", "wired": ["x"], "medium": "shared"}, "--wired: ", "whole number"),
        ({"bandwidth": "1 Mbit/s", "wired": ["9"], "medium": "shared"}, "--wired: ", "no node 9"),
        ({"bandwidth": "1 Mbit/s", "override": ["4:loss=0.1"]}, "--override", "no node 4"),
        ({"bandwidth": "1 Mbit/s", "override": ["1:loss=much"]}, "--override 1: loss: ", "number"),
        ({"bandwidth": "1 Mbit/s", "override": ["1:los=0.1"]}, "--override 1: los: ", "'loss'"),
        ({"bandwidth": "1 Mbit/s", "override": ["loss=0.1"]}, "--override 'loss=0.1': ", "3:bandwidth"),
        ({"bandwidth": "1 Mbit/s", "override": ["1:loss"]}, "--override '1:loss': ", "KEY=VALUE"),
        ({"bandwidth": "1 Mbit/s", "override": ["1:loss=0,loss=1"]}, "--override '1:loss=0,loss=1': ", "twice"),
        ({"bandwidth": "1 Mbit/s", "outage": ["at=5"]}, "--outage: at: ", "'5 ms'"),
        ({"bandwidth": "1 Mbit/s", "outage": ["soon"]}, "--outage 'soon': ", "at=5 s"),
        ({"bandwidth": "1 Mbit/s", "congestion_control": "Reno!"}, "--congestion-control: ", ""),
        ({"bandwidth": "1 Mbit/s", "seed": "-1"}, "--seed: ", "0 or more"),
        ({"trace": ",start=3 s"}, "--trace ',start=3 s': ", "name a file"),
    ],
)
def test_a_wrong_option_is_said_by_its_name(options: dict[str, object], start: str, words: str) -> None:
    messages = refusal(**options)
    assert messages[0].startswith(start) and words in messages[0], messages


def test_all_that_is_wrong_is_said_at_once() -> None:
    messages = refusal(bandwidth="10", latency="5", override=["x", "1:loss=2"], outage=["never"], seed="y")
    assert len(messages) == 6


def test_two_hundred_descriptions_made_of_junk_are_refused_or_understood() -> None:
    chance = random.Random(7)
    texts = [
        "bandwidth",
        "up",
        "down",
        "trace",
        "latency",
        "queue",
        "jitter",
        "jitter_distribution",
        "loss",
        "loss_burst",
    ]
    texts += ["medium", "standard", "efficiency", "aggregation", "fairness", "congestion_control", "seed", "backend"]
    lists = ["override", "outage", "wired"]
    refused = 0
    for _ in range(200):
        options: dict[str, object] = {"bandwidth": "10 Mbit/s"}
        for name in chance.sample(texts + lists, chance.randint(1, 4)):
            options[name] = [chance.choice(JUNK)] if name in lists else chance.choice(JUNK)
        try:
            link(**options)
        except ConfigError as error:
            refused += 1
            assert all("Traceback" not in str(problem) and str(problem) for problem in error.problems)
    assert refused > 190
