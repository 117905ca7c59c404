"""Links with a name: what is built in, what keys on top do to them, and files of users."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from bwbench.cli.link.shown_link import preset_table
from bwbench.network.link import Link
from bwbench.network.link.named_links import absolute_preset, expand_preset, named_links
from bwbench.network.link.trace_file import freeze_link

DATED = re.compile(r"\b(19|20)\d\d\b|WebPageTest|FCC|IEEE|ITU-T|Ookla|Firefox|Chrome|patchbay|comcast|Our choice")


@pytest.mark.parametrize("row", preset_table(), ids=lambda row: row["name"])
def test_every_preset_is_a_link_with_a_summary_and_a_source(row):
    link = Link.model_validate({"preset": row["name"]})
    assert link.bottleneck_bps > 0 and link.latency_s > 0
    assert row["link"] == link.describe()
    assert 10 < len(row["summary"]) < 80
    assert DATED.search(row["source"])
    assert (link.air is not None) == (row["name"].startswith("wifi-") or row["name"] == "home-mesh")


def test_the_names_that_were_promised():
    wifi = [f"wifi-802.11{letters}-{state}" for letters in ("g", "n", "ac", "ax") for state in ("good", "bad")]
    lines = ["3g", "4g", "5g", "dsl", "cable", "fibre", "starlink"]
    assert {*wifi, *lines, "home-mesh", "transatlantic", "lan-100m", "lan-1g"} <= set(named_links(Link))


@pytest.mark.parametrize("standard", ["g", "n", "ac", "ax"])
def test_bad_wifi_is_worse_than_good(standard):
    good, bad = (Link.model_validate({"preset": f"wifi-802.11{standard}-{state}"}) for state in ("good", "bad"))
    assert bad.bottleneck_bps < good.bottleneck_bps / 3
    assert bad.latency_s > good.latency_s and bad.loss > good.loss


def test_lines_to_the_home_are_slower_upwards():
    for name in ("3g", "4g", "5g", "dsl", "cable", "fibre", "starlink"):
        base = Link.model_validate({"preset": name}).base
        assert base.up_bps < base.down_bps


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"up": "1 Mbit/s", "down": "16 Mbit/s", "latency": "49 ms", "jitter": "1 ms"}),
        ({"latency": "5 ms"}, {"up": "1 Mbit/s", "down": "16 Mbit/s", "latency": "5 ms", "jitter": "1 ms"}),
        ({"bandwidth": "5 Mbit/s"}, {"bandwidth": "5 Mbit/s", "latency": "49 ms", "jitter": "1 ms"}),
        ({"bandwidth_bps": "5 Mbit/s"}, {"bandwidth": "5 Mbit/s", "latency": "49 ms", "jitter": "1 ms"}),
        ({"up": "2 Mbit/s"}, {"up": "2 Mbit/s", "down": "16 Mbit/s", "latency": "49 ms", "jitter": "1 ms"}),
        ({"trace": "x"}, {"trace": "x", "latency": "49 ms", "jitter": "1 ms"}),
        ({"trace": {"up": "x"}}, {"trace": {"up": "x"}, "down": "16 Mbit/s", "latency": "49 ms", "jitter": "1 ms"}),
    ],
)
def test_keys_on_top_win_and_drop_what_they_contradict(given, expected):
    assert expand_preset({"preset": "dsl", **given}, Link) == expected


def test_what_goes_with_a_key_goes_with_it():
    mesh = expand_preset({"preset": "home-mesh", "standard": "802.11ax"}, Link)
    assert "efficiency" not in mesh and mesh["medium"] == "shared"
    switched = expand_preset({"preset": "home-mesh", "medium": "switched"}, Link)
    assert not {"standard", "efficiency", "aggregation"} & set(switched)
    assert Link.model_validate(switched).air is None
    lossless = expand_preset({"preset": "starlink", "loss": 0}, Link)
    assert "loss_burst" not in lossless
    assert Link.model_validate(lossless).burst_loss is None
    assert Link.model_validate({"preset": "starlink", "jitter": "0 ms", "seed": 7}).jitter_s == 0


def test_a_link_without_a_preset_comes_back_as_it_is():
    link = {"bandwidth": "1 Mbit/s", "latency": "1 ms"}
    assert expand_preset(link, Link) == link


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("wifi-802.11m-good", ["unknown preset 'wifi-802.11m-good'", "Did you mean", "Known: wifi-802.11g-good"]),
        ("home_mesh", ["Did you mean 'home-mesh'?", "path/to/file.yaml:NAME"]),
        (7, ["preset: 7 is not a name"]),
        (None, ["preset: null is not a name"]),
        (["dsl"], ["is not a name"]),
        ("", ["is not a name"]),
        ("mine.yaml", ["'mine.yaml' is a file", "'mine.yaml:NAME'"]),
        ("/nowhere/mine.yaml:office", ["/nowhere/mine.yaml", "no such file"]),
    ],
)
def test_unknown_presets(value, words):
    with pytest.raises(ValidationError) as caught:
        Link.model_validate({"preset": value})
    message = str(caught.value)
    assert all(word in message for word in words), message


MINE = """
office:
  summary: our office
  source: measured on a Monday
  link: {medium: shared, standard: 802.11ac, bandwidth: 390 Mbit/s, latency: 2 ms, trace: null}
office-lossy:
  link: {preset: "mine.yaml:base", loss: 0.01}
driving:
  link: {trace: {up: up.txt, down: {file: down.txt, start: 2 s}}, overrides: {1: {trace: up.txt}}}
"""


def test_users_keep_their_own_and_name_them_from_anywhere(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("base: {link: {bandwidth: 8 Mbit/s, latency: 3 ms}}\n")
    (tmp_path / "more.yaml").write_text(MINE)
    (tmp_path / "up.txt").write_text("0\t1\n1\t3\n")
    (tmp_path / "down.txt").write_text("0\t4\n1\t4\n")
    monkeypatch.chdir("/")
    link = Link.model_validate({"preset": f"{tmp_path}/more.yaml:office-lossy", "latency": "4 ms"})
    assert (link.bandwidth_bps, link.latency_s, link.loss) == (8e6, 0.004, 0.01)
    here = absolute_preset({"preset": "more.yaml:driving", "seed": 2}, tmp_path)
    assert here == {"preset": f"{tmp_path}/more.yaml:driving", "seed": 2}
    driving = Link.model_validate(here)
    assert driving.trace.up.file == str(tmp_path / "up.txt")
    assert driving.overrides[1].trace.down.file == str(tmp_path / "up.txt")
    one_way = Link.model_validate({**here, "trace": {"up": "other.txt"}})
    assert (one_way.trace.up.file, one_way.trace.down.file) == ("other.txt", str(tmp_path / "down.txt"))
    assert absolute_preset({"preset": "dsl"}, tmp_path) == {"preset": "dsl"}
    assert absolute_preset({"preset": 3}, tmp_path) == {"preset": 3}


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("", None, ["holds no presets"]),
        ("- a\n", 1, ["holds no presets"]),
        ("a: 10 Mbit/s\n", 1, ["preset 'a' has no link"]),
        ("a:\n  link: {bandwidth: 10}\n", 2, ["preset 'a'", "10 has no unit"]),
        ("a:\n  lnik: {bandwidth: 1 Mbit/s}\n  link: {bandwidth: 1 Mbit/s}\n", 2, ["'lnik'", "Did you mean 'link'?"]),
        ("a:\n  summary: [x]\n  link: {bandwidth: 1 Mbit/s}\n", 2, ["is not text"]),
        ("a:\n  link:\n    bandwidth: 1 Mbit/s\n    latncy: 2 ms\n", 4, ["'latncy'", "Did you mean 'latency'?"]),
        ("a:\n  link: {preset: dls}\n", 2, ["unknown preset 'dls'"]),
        ("a:\n  link: {preset: 'mine.yaml:a'}\n", 2, ["refer to each other"]),
        ("a: {link: {bandwidth: 1 Mbit/s}}\n", None, ["unknown preset 'x'", "Known: a"]),
    ],
)
def test_mistakes_in_a_file_of_presets_are_shown_with_their_line(tmp_path, content, line, words):
    file = tmp_path / "mine.yaml"
    file.write_text(content)
    with pytest.raises(ValidationError) as caught:
        Link.model_validate({"preset": f"{file}:x"})
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert line is None or f"{file}:{line}:" in message, message


def test_a_changed_file_is_read_again(tmp_path):
    file = tmp_path / "mine.yaml"
    for rate in (1, 22):
        file.write_text(f"a: {{link: {{bandwidth: {rate} Mbit/s}}}}\n")
        assert Link.model_validate({"preset": f"{file}:a"}).bandwidth_bps == rate * 1e6


def test_freezing_fills_in_what_the_files_say(tmp_path):
    (tmp_path / "a.txt").write_text("0\t1\n1\t3\n")
    link = Link.model_validate(
        {
            "trace": {"file": "a.txt", "measures": "link"},
            "latency": "1 ms",
            "overrides": {2: {"trace": {"up": "a.txt"}}},
        }
    )
    frozen = freeze_link(link, tmp_path)
    assert frozen.trace.up.file == str(tmp_path / "a.txt")
    assert len(frozen.trace.down.sha256) == 64
    assert frozen.base.up_bps == 2e6
    assert frozen.overrides[2].trace.up.mean_bps == pytest.approx(2e6 * 1514 / 1448)
    assert freeze_link(frozen, Path("/")) == frozen
    assert Link.model_validate_json(frozen.model_dump_json(by_alias=True)) == frozen
    plain = Link.model_validate({"bandwidth": "1 Mbit/s"})
    assert freeze_link(plain, tmp_path) is plain


def test_the_command_line_starts_without_reading_presets():
    code = "import bwbench.cli.main, bwbench.network.link.named_links as it; print(it.named_links.cache_info())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "misses=0" in done.stdout
