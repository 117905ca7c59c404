"""The picture that compares links: which links it is for, what they are called, their order, and what stands in it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fixtures_matrices import write_matrix
from fixtures_records import Study, write_study

from bwbench.network.link import Link
from bwbench.results.analysis.results import Results, arrivals_by_seed, load_results, regrouped
from bwbench.results.analysis.statistics import estimate
from bwbench.results.figures.links_compared import LinksCompared, common_words, links_table, name_links, ranked
from bwbench.results.figures.style import PAGE_IN, WIDTHS_IN

ARMS = "algorithm=[single, no-communication, ddp, diloco]"
EDGE = "wifi-802.11n-good, node 3: 6.5 Mbit/s"


def compared(folder: Path) -> Results:
    (results,) = regrouped(load_results(folder), LinksCompared.compares)
    return results


@pytest.fixture(scope="module")
def wifi(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Four arms on the seven links of experiments/wifi.yaml; the limit is too short for the slow ones."""
    root = tmp_path_factory.mktemp("wifi")
    write_matrix(root, "wifi", (ARMS, "repeats=2", "limit.time=30 s"))
    return compared(root)


def test_a_row_an_arm_and_link(wifi: Results) -> None:
    table = LinksCompared().table(wifi)
    linked = table[table["link"] != ""]
    assert len(linked) == 7 * 2 and set(linked["arm"]) == {"ddp", "diloco"}
    assert {"home-mesh", "wifi-802.11g-bad", "wifi-802.11n-good", EDGE} < set(linked["link"])
    for row in linked.to_dict("records"):
        here = wifi.cells[wifi.cells["arm"] == row["arm"]]
        if row["link"] == "home-mesh":
            centre = estimate(list(arrivals_by_seed(here[here["bandwidth_bps"] == 433.3e6]).values()))
            assert (row["time_s"], row["at_least_s"], row["num"]) == (centre.value, centre.at_least, 2)
    words = linked.set_index("link")["words"]
    asked = "144.4 Mbit/s, RTT 2 ms, shared air (802.11n), jitter 500 us (independent), queue 1 bdp, node(s) 3 differ"
    assert asked in set(words[EDGE])


def test_arms_that_no_link_concerns_have_one_row_whose_repeats_count_once(wifi: Results) -> None:
    limits = links_table(wifi).tail(2).set_index("arm")
    assert set(limits.index) == {"single", "no-communication"} and set(limits["link"]) == {""}
    assert len(wifi.cells[wifi.cells["arm"] == "no-communication"]) == 7 * 2
    assert limits.loc["no-communication", "num"] == 2


@pytest.mark.parametrize("width_in", WIDTHS_IN.values())
def test_links_are_named_from_the_fastest_down(wifi: Results, width_in: float) -> None:
    figure = LinksCompared().draw(wifi, width_in)
    (axes,) = figure.axes
    table = links_table(wifi)
    wanted = list(dict.fromkeys(table[table["link"] != ""]["link"]))
    written = [text.get_text().replace("\n", " ").replace("\u00a0", " ") for text in axes.texts]
    assert [text for text in written if text in wanted] == wanted
    assert wanted[0] == "wifi-802.11ac-good" and wanted[-1] == "wifi-802.11g-bad"
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert axes.get_xscale() == "log"


def test_every_time_beyond_the_limit_has_an_arrow_to_the_right(wifi: Results) -> None:
    table = links_table(wifi)
    beyond = table[table["time_s"].map(math.isinf) & (table["link"] != "")]
    assert 0 < len(beyond) < 7 * 2
    (axes,) = LinksCompared().draw(wifi, PAGE_IN).axes
    arrows: list[Any] = [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]
    assert len(arrows) == len(beyond)
    assert all(arrow.xyann[0] > 0 and arrow.xyann[1] == 0 for arrow in arrows)
    right = axes.transAxes.transform((1, 0))[0]
    assert all(arrow.arrow_patch.get_window_extent().x1 <= right for arrow in arrows)


@pytest.mark.parametrize(
    ("file", "overrides", "why"),
    [
        ("latency", ("algorithm=[ddp, diloco]",), "the links differ in bandwidth and latency alone"),
        ("batch_size", ("algorithm=[ddp, ring]", "link.bandwidth=[10 Mbit/s]"), "only one kind of link"),
        ("wifi", ("algorithm=[ddp]",), "only one arm"),
        ("wifi", (ARMS,), None),
    ],
)
def test_when_it_applies(tmp_path: Path, file: str, overrides: tuple[str, ...], why: str | None) -> None:
    write_matrix(tmp_path, file, (*overrides, "repeats=1"))
    found = [LinksCompared().applies(one) for one in regrouped(load_results(tmp_path), LinksCompared.compares)]
    assert all(one is None if why is None else one is not None and one.startswith(why) for one in found)


def test_it_needs_a_target(tmp_path: Path) -> None:
    write_study(tmp_path, Study(repeats=1, target=None, limit_s=1.0, arms=("ring", "single")))
    assert LinksCompared().applies(compared(tmp_path)) == "the cells have no target"


def test_too_many_links_are_not_drawn(wifi: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bwbench.results.figures.links_compared._MOST_LINKS", 6)
    assert LinksCompared().applies(wifi) == "7 links are too many for one picture"


def asked(**keys: Any) -> dict[str, Any]:
    """A link as it stands in cell.json: presets are written out."""
    return Link.model_validate(keys).model_dump(mode="json", by_alias=True)


def names(*links: dict[str, Any]) -> list[str]:
    return [name.name for name in name_links(links)]


def test_a_preset_is_found_again_whatever_is_different_at_some_nodes() -> None:
    slow = {1: {"latency": "20 ms"}, 2: {"latency": "20 ms"}, 3: {"bandwidth": "1 Mbit/s", "loss": 0.01}}
    first, second = name_links([asked(preset="dsl"), asked(preset="wifi-802.11g-bad", overrides=slow, wired=[0])])
    assert (first.name, first.about) == ("dsl", "1 Mbit/s up, 16 Mbit/s down, RTT 98 ms")
    assert second.name == "wifi-802.11g-bad, node 0 wired, nodes 1 and 2: latency 20 ms, node 3: 1 Mbit/s, loss 0.01"
    assert second.about == "12 Mbit/s, RTT 6 ms"


def test_without_a_preset_a_link_is_called_by_what_it_does_not_share() -> None:
    plain: dict[str, Any] = {"bandwidth": "20 Mbit/s", "latency": "2 ms"}
    links = [asked(**plain), asked(**plain, medium="shared"), asked(**plain, medium="shared", wired=[0])]
    assert names(*links) == ["switched", "shared air", "shared air, node 0 wired"]
    assert common_words(links) == ["20 Mbit/s", "RTT 4 ms"]
    assert names(links[0], asked(shaped=False)) == ["20 Mbit/s, RTT 4 ms, switched", "unshaped link"]
    unknown = {"shaped": True, "bandwidth": "9 Mbit/s", "carrier": "pigeon"}
    assert "carrier pigeon" in names(links[0], unknown)[1]


def test_no_two_names_are_alike() -> None:
    bbr = asked(preset="dsl", tcp={"congestion_control": "bbr"})
    assert names(asked(preset="dsl"), bbr) == ["dsl", "dsl, tcp congestion control bbr"]
    traces = [asked(trace=f"/a-folder-with-a-long-name/{name}.txt") for name in ("monday", "tuesday")]
    first, second = names(*traces)
    assert first != second and first.endswith("(1)") and second.endswith("(2)")


def test_what_did_not_run_on_the_slowest_link_is_not_taken_for_fast() -> None:
    rows = [("slow", "a", 100.0), ("fast", "a", 10.0), ("slow", "b", 50.0), ("fast", "b", 5.0), ("fast", "c", 20.0)]
    table = pd.DataFrame(rows, columns=["link", "arm", "at_least_s"])
    assert ranked(table, "arm", "link") == ["b", "a", "c"]
    assert ranked(table, "link", "arm") == ["fast", "slow"]
