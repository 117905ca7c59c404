"""Which cells share a picture."""

from __future__ import annotations

from pathlib import Path

from fixtures_records import Study, write_study

from bwbench.analysis.grouping import bandwidth_label, group_cells
from bwbench.records import CellFolder, iter_cells

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
    assert sorted(folder.cell["arm"] for folder in group.at(1e6)) == ["ring", "single", "threshold"]


def test_other_settings_make_pictures_of_their_own_and_single_joins_each_number_of_nodes(tmp_path: Path) -> None:
    found = group_cells(folders(tmp_path, quick(nodes=2), quick(nodes=4)))
    assert [group.label for group in found] == ["2-nodes", "4-nodes"]
    for group in found:
        assert sorted(folder.cell["arm"] for folder in group.folders) == ["ring", "single", "threshold"]


def test_settings_that_only_follow_another_one_make_none(tmp_path: Path) -> None:
    coupled = (quick(model="cnn", dataset="digits"), quick(model="mlp", dataset="mnist", extra={"batch_size": 64}))
    found = group_cells(folders(tmp_path, *coupled))
    assert [group.label for group in found] == ["cnn", "mlp"]
    assert all(len(group.folders) == len(ARMS) for group in found)


def test_what_differs_between_arms_alone_makes_none(tmp_path: Path) -> None:
    found = group_cells(folders(tmp_path, quick()))  # the fixture tunes threshold's learning rate
    assert len(found) == 1


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


def test_one_node_alone_is_a_group(tmp_path: Path) -> None:
    (group,) = group_cells(folders(tmp_path, quick(arms=("single",))))
    assert group.bandwidths == [None] and len(group.at(None)) == 1


def test_bandwidths_in_file_names() -> None:
    assert [bandwidth_label(bps) for bps in (1e6, 2.5e6, None)] == ["1Mbps", "2.5Mbps", "unshaped"]
