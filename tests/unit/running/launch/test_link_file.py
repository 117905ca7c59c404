"""What ``link.json`` says of slow motion, and when its emulator was late."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.network.link import UNSHAPED, Link
from bwbench.records import read_record
from bwbench.records.schema import Emulator, LinkRecord
from bwbench.running.launch.attempt import LATE_EMULATOR_S, LinkFile, emulator_unfit

LINK = Link.model_validate({"bandwidth": "10 Mbit/s", "latency": "5 ms"})


def written(tmp_path: Path, link: Link, dilation: float) -> LinkRecord:
    file = LinkFile(link, tmp_path, dilation)
    file.add_virtual_nodes()  # the first thing that writes it
    found = read_record(LinkRecord, tmp_path / "link.json")
    assert found == file.record
    return found


def test_the_link_stands_in_both_times(tmp_path: Path) -> None:
    found = written(tmp_path, LINK, 4.0)
    assert found.dilation == 4.0
    assert found.requested is not None and found.dilated is not None
    assert (found.requested["bandwidth"], found.dilated["bandwidth"]) == ("10 Mbit/s", "2.5 Mbit/s")
    assert (found.requested["latency"], found.dilated["latency"]) == ("5 ms", "20 ms")
    assert Link.recorded(found.requested) == LINK


@pytest.mark.parametrize("link", [LINK, UNSHAPED])
def test_without_slow_motion_a_record_is_as_it_was(tmp_path: Path, link: Link) -> None:
    found = written(tmp_path, link, 1.0)
    assert (found.dilation, found.dilated) == (None, None)


def test_an_unshaped_link_has_no_slow_motion(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unshaped"):
        LinkFile(UNSHAPED, tmp_path, 2.0)


@pytest.mark.parametrize("dilation", [0.25, 1.0, 8.0])
def test_an_emulator_is_late_by_emulated_time(dilation: float) -> None:
    def late(p99_s: float) -> str | None:
        return emulator_unfit(Emulator.model_validate({"training": {"frames": 5000, "p99_s": p99_s}}), dilation)

    assert late(0.9 * LATE_EMULATOR_S * dilation) is None
    assert "late" in (late(1.1 * LATE_EMULATOR_S * dilation) or "")
