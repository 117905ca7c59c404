"""Where captures lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.cli.link.captures import capture_files


@pytest.mark.parametrize(
    "file, names",
    [
        ("link.pcap", ["link-0.pcap", "link-1.pcap"]),
        ("link", ["link-0", "link-1"]),
        ("a{rank}.pcap", ["a0.pcap", "a1.pcap"]),
        ("a.b.pcap", ["a.b-0.pcap", "a.b-1.pcap"]),
    ],
)
def test_every_node_has_a_file(tmp_path: Path, file: str, names: list[str]) -> None:
    assert capture_files(str(tmp_path / file), 2) == [tmp_path / name for name in names]


def test_a_folder_a_node(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    assert capture_files(str(tmp_path / "{rank}" / "x"), 1) == [tmp_path / "0" / "x"]
    with pytest.raises(ConfigError, match="no folder"):
        capture_files(str(tmp_path / "{rank}" / "x"), 2)
