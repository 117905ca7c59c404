"""benchmarks/distribute_parts: which ranks a script has on which host, and what comes back; without a network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from bwbench.network.link import UNSHAPED, Link

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from distribute_parts import ranks_of_script

SCRIPT = """\
import os, sys
sys.path.insert(0, {folder!r})
from distribute_parts.ranks_of_script import run_script, tell

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "INTERFACE", "BWBENCH_RANK")

def main():
    sys.exit("called as no rank")

def train(asked):
    if asked["fails"]:
        sys.exit(3)
    tell(asked, {{name: os.environ.get(name) for name in NAMES}})

if __name__ == "__main__":
    run_script(main, train)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A script whose hosts are all this machine."""

    @contextmanager
    def here(_: object, num_hosts: int) -> Iterator[list[SimpleNamespace]]:
        yield [
            SimpleNamespace(
                address=f"10.0.0.{host}",
                interface=f"data{host}",
                environment={"BWBENCH_RANK": str(host)},
                popen=subprocess.Popen,
            )
            for host in range(num_hosts)
        ]

    monkeypatch.setattr(ranks_of_script, "emulate", here)
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.format(folder=str(Path(ranks_of_script.__file__).parents[1])))
    return str(file)


def test_ranks_of_a_host_are_consecutive_and_tell_by_rank(script: str) -> None:
    told = ranks_of_script.ask_ranks(script, UNSHAPED, 2, {"fails": False}, 60.0, per_host=2)
    columns = ("RANK", "LOCAL_RANK", "BWBENCH_RANK", "INTERFACE")
    assert [tuple(one[name] for name in columns) for one in told] == [
        ("0", "0", "0", "data0"),
        ("1", "1", "0", "data0"),
        ("2", "0", "1", "data1"),
        ("3", "1", "1", "data1"),
    ]
    alike = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    assert {tuple(one[name] for name in alike) for one in told} == {("4", "2", "10.0.0.0")}


@pytest.mark.parametrize("link", [UNSHAPED, None])
def test_a_rank_that_fails_ends_it(script: str, link: Link | None) -> None:
    with pytest.raises(SystemExit, match="rank 0 failed: it ended with 3"):
        ranks_of_script.ask_ranks(script, link, 1, {"fails": True}, 60.0)


def test_without_a_link_ranks_are_on_the_loopback(script: str) -> None:
    (one,) = ranks_of_script.ask_ranks(script, None, 1, {"fails": False}, 60.0)
    assert (one["MASTER_ADDR"], one["INTERFACE"], one["WORLD_SIZE"]) == ("127.0.0.1", "lo", "1")


def test_ranks_that_take_too_long_are_ended(script: str) -> None:
    with pytest.raises(SystemExit, match="took longer than 0 s"):
        ranks_of_script.ask_ranks(script, None, 2, {"fails": False}, 0.0)


def test_without_ranks_the_script_measures(script: str) -> None:
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "called as no rank" in ended.stderr
