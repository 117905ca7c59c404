"""Which cells share a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures_matrices import write_matrix
from fixtures_records import Study, write_study

from bwbench.records import CellFolder, iter_cells
from bwbench.results.analysis.cells import dilation_of
from bwbench.results.analysis.grouping import BANDWIDTH_KEY, UNSHAPED, Group, deciding, flat_settings, group_cells

ARMS = ("ring", "threshold", "single")


def folders(root: Path, *studies: Study) -> list[CellFolder]:
    for study in studies:
        write_study(root, study)
    return list(iter_cells(root))


def quick(**changes: object) -> Study:
    return Study(**{"arms": ARMS, "repeats": 1, "limit_s": 1.0, **changes})  # type: ignore[arg-type]


def test_arms_repeats_and_bandwidths_share_a_picture(tmp_path: Path) -> None:
    found = group_cells(folders(tmp_path, quick(repeats=2, bandwidths_mbps=(1.0, 10.0))))
    assert len(found) == 1 and found[0].label == ""
    assert found[0].bandwidths == [1e6, 1e7]
    assert len(found[0].folders) == 2 * (2 * 2 + 1)


def test_one_bandwidth_comes_with_the_arm_that_needs_no_link(tmp_path: Path) -> None:
    (group,) = group_cells(folders(tmp_path, quick(bandwidths_mbps=(1.0, 10.0))))
    assert sorted(folder.cell.arm for folder in group.at(1e6)) == ["ring", "single", "threshold"]


def test_other_settings_make_pictures_of_their_own_and_single_joins_each_number_of_nodes(tmp_path: Path) -> None:
    found = group_cells(folders(tmp_path, quick(nodes=2), quick(nodes=4)))
    assert [group.label for group in found] == ["2-nodes", "4-nodes"]
    for group in found:
        assert sorted(folder.cell.arm for folder in group.folders) == ["ring", "single", "threshold"]


def test_settings_that_only_follow_another_one_make_none(tmp_path: Path) -> None:
    coupled = (quick(model="cnn", dataset="digits"), quick(model="mlp", dataset="mnist", extra={"batch_size": 64}))
    found = group_cells(folders(tmp_path, *coupled))
    assert [group.label for group in found] == ["cnn", "mlp"]
    assert all(len(group.folders) == len(ARMS) for group in found)


def test_what_differs_between_arms_alone_makes_none(tmp_path: Path) -> None:
    found = group_cells(folders(tmp_path, quick()))  # the fixture tunes threshold's learning rate
    assert len(found) == 1


def test_a_method_with_two_optimizers_is_two_arms_of_one_picture(tmp_path: Path) -> None:
    """And one node alone with another one is no repeat of itself."""
    file = tmp_path / "fair.yaml"
    file.write_text("""
name: fair
nodes: 2
link: {bandwidth: 10 Mbit/s}
model: mlp
target: {accuracy: 0.9}
matrix:
  algorithm, optimizer:
    - [ddp, sgd]
    - [ddp, {muon: {decay: linear}}]
    - [muloco, muon]
    - [single, sgd]
    - [single, adamw]
    - [single, muon]
""")
    write_matrix(tmp_path / "results", file)
    (group,) = group_cells(list(iter_cells(tmp_path / "results")))
    assert sorted(folder.cell.arm for folder in group.folders) == [
        *("ddp", "ddp(optimizer=muon,decay=linear)", "muloco"),
        *("single", "single(optimizer=adamw)", "single(optimizer=muon)"),
    ]


def test_a_limit_that_follows_the_bandwidth_makes_none(tmp_path: Path) -> None:
    slow, fast = quick(bandwidths_mbps=(1.0,), limit_s=1.0), quick(bandwidths_mbps=(10.0,), limit_s=0.5)
    (group,) = group_cells(folders(tmp_path, slow, fast))
    assert group.bandwidths == [1e6, 1e7]


def test_round_trips_are_named_in_files_and_left_to_the_caption_in_words(tmp_path: Path) -> None:
    found = group_cells(folders(tmp_path, quick(latency="2.5 ms"), quick(latency="20 ms")))
    assert sorted(group.label for group in found) == ["latency-2.5-ms", "latency-20-ms"]
    assert all(group.words == "" for group in found)


def test_accumulation_is_named_in_both(tmp_path: Path) -> None:
    found = group_cells(folders(tmp_path, quick(extra={"accumulate": 1}), quick(extra={"accumulate": 4})))
    assert [(group.label, group.words) for group in found] == [
        ("accumulate-1", "accumulate 1"),
        ("accumulate-4", "accumulate 4"),
    ]


def of_sites(bandwidth: str, outside: str) -> Study:
    """Both sites have a line of that rate, and each node a rate of its own inside."""
    link = {
        "shaped": True, "bandwidth": bandwidth, "latency": "1 ms", "medium": "switched",
        "sites": [{"name": name, "bandwidth": outside} for name in ("a", "b")],
    }  # fmt: skip
    return quick(extra={"link": link}, arms=("ring", "threshold"))


def test_the_bandwidth_between_sites_is_that_of_their_lines_and_may_be_compared(tmp_path: Path) -> None:
    cells = folders(tmp_path, *(of_sites("1 Gbit/s", outside) for outside in ("20 Mbit/s", "50 Mbit/s", "100 Mbit/s")))
    (group,) = group_cells(cells)
    assert group.bandwidths == [2e7, 5e7, 1e8] and len(group.at(5e7)) == 2
    assert {flat_settings(cell)[BANDWIDTH_KEY] for cell in cells} == {"20 Mbit/s", "50 Mbit/s", "100 Mbit/s"}


def test_what_nodes_have_inside_their_sites_is_never_mixed(tmp_path: Path) -> None:
    found = group_cells(folders(tmp_path, *(of_sites(inside, "20 Mbit/s") for inside in ("1 Gbit/s", "100 Mbit/s"))))
    assert [group.words for group in found] == [f"bandwidth inside sites {rate}" for rate in ("100 Mbit/s", "1 Gbit/s")]
    assert [group.bandwidths for group in found] == [[2e7], [2e7]]
    slow = group_cells(folders(tmp_path / "b", *(of_sites(inside, "1 Gbit/s") for inside in ("2 Mbit/s", "8 Mbit/s"))))
    assert [group.bandwidths for group in slow] == [[2e6, 8e6]], "there the nodes' own links are the slowest"


def test_one_node_alone_is_a_group(tmp_path: Path) -> None:
    (group,) = group_cells(folders(tmp_path, quick(arms=("single",))))
    assert group.bandwidths == [None] and len(group.at(None)) == 1


def test_bandwidths_in_file_names() -> None:
    labels = [Group(((BANDWIDTH_KEY, text),), ()).label for text in ("1 Mbit/s", "2.5 Mbit/s", UNSHAPED)]
    assert labels == ["1Mbps", "2.5Mbps", "unshaped"]


def test_what_is_compared_splits_nothing_and_neither_does_what_follows_it(tmp_path: Path) -> None:
    batches = (quick(extra={"batch_size": 8}, step_time_s=0.01), quick(extra={"batch_size": 32}, step_time_s=0.04))
    cells = folders(tmp_path, *batches)
    (group,) = group_cells(cells, {"batch_size", "accumulate"})
    assert group.label == "" and len(group.folders) == len(cells)
    assert {flat_settings(cell)["batch_size"] for cell in deciding(group.folders)} == {8, 32}
    assert [group.label for group in group_cells(cells)] == ["batch-size-8", "batch-size-32"]


def test_a_picture_spans_latencies_where_it_compares_them(tmp_path: Path) -> None:
    cells = folders(tmp_path, *(quick(latency=latency, bandwidths_mbps=(1.0, 10.0)) for latency in ("2.5 ms", "20 ms")))
    (group,) = group_cells(cells, {"link.bandwidth", "link.latency"})
    assert len(group.folders) == 2 * 2 * 2 + 1
    assert {flat_settings(cell)["link.latency"] for cell in deciding(group.folders)} == {"2.5 ms", "20 ms"}
    assert len(group_cells(cells, {"link.latency"})) == 2
    assert [group.label for group in group_cells(cells, set())] == [
        "latency-2.5-ms_1Mbps", "latency-2.5-ms_10Mbps", "latency-20-ms_1Mbps", "latency-20-ms_10Mbps",
    ]  # fmt: skip


def test_models_are_never_mixed_though_each_comes_with_a_setting_that_is_compared(tmp_path: Path) -> None:
    coupled = (quick(model="cnn", nodes=2), quick(model="mlp", nodes=4))
    assert [group.label for group in group_cells(folders(tmp_path, *coupled), {"nodes"})] == ["cnn", "mlp"]


def test_one_node_alone_joins_the_cells_that_compute_as_it_does(tmp_path: Path) -> None:
    cells = folders(tmp_path, quick(nodes=2, step_time_s=0.02), quick(nodes=4, step_time_s=0.04))
    groups = group_cells(cells)
    assert [len(group.folders) for group in groups] == [3, 3]
    (across,) = group_cells(cells, {"nodes"})
    assert len(across.folders) == 6


def test_step_times_that_are_drawn_or_differ_are_named_in_words_and_one_node_alone_joins_them(tmp_path: Path) -> None:
    def computing(**compute: object) -> Study:
        return quick(extra={"compute": {"threads": 1, "step_time": "60 ms", **compute}})

    drawn = computing(step_time={"mean": "60 ms", "spread": 0.2})
    slow = quick(arms=("ring",), extra=computing(overrides={"2": {"step_time": "120 ms"}}).extra)
    found = group_cells(folders(tmp_path, computing(), drawn, slow))
    assert sorted(group.words for group in found) == [
        "compute step time 60 ms", "compute step time 60 ms ± 20 %", "compute step time 60 ms, node 2: 120 ms",
    ]  # fmt: skip
    for group in found:
        assert "single" in {folder.cell.arm for folder in group.folders}


def test_one_node_alone_joins_nodes_of_which_the_first_is_slow(tmp_path: Path) -> None:
    def slow(*nodes: int) -> dict[str, object]:
        own = {str(node): {"step_time": "120 ms"} for node in nodes}
        return {"compute": {"threads": 1, "step_time": "60 ms", "overrides": own}}

    alike = quick(extra={"compute": {"threads": 1, "step_time": "60 ms"}})
    both, alone = quick(arms=("ring",), extra=slow(0, 2)), quick(arms=("single",), extra=slow(0))
    found = {group.words: group for group in group_cells(folders(tmp_path, alike, both, alone))}
    group = found["compute step time 60 ms, node 0: 120 ms, node 2: 120 ms"]
    assert [
        str(folder.flat_config["compute.step_time"]) for folder in group.folders if folder.cell.arm == "single"
    ] == ["60 ms, node 0: 120 ms"]


def test_slow_motion_makes_groups_which_one_node_alone_joins_in_the_machines_time(tmp_path: Path) -> None:
    plain, slow = quick(), quick(arms=("ring", "threshold"), extra={"dilation": 8.0})
    found = group_cells(folders(tmp_path, plain, slow))
    assert [(group.words, group.label) for group in found] == [
        ("dilation 1", "dilation-1"),
        ("dilation 8", "dilation-8"),
    ]
    for group in found:
        assert sorted(folder.cell.arm for folder in group.folders) == ["ring", "single", "threshold"]


@pytest.mark.parametrize("odd", [None, "fast", 0, -2, 10**400, float("inf"), float("nan"), [8]])
def test_a_dilation_that_no_cell_can_have_is_none(odd: object) -> None:
    assert dilation_of({"dilation": odd}) == 1.0  # type: ignore[dict-item]  # what a record may hold
