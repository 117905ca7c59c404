"""Records of any size, and files of any name: what takes no room where it lies takes neither time nor room here."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures_commands import bwbench
from fixtures_records import Study, write_study

from bwbench.base.errors import RecordError
from bwbench.records import read_events
from bwbench.records.packed import MOST_OF_A_CELL, PACKED
from bwbench.records.schema.documents import MOST_VALUES

ODD_BYTES = os.fsdecode(b"\xff\xfe")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_study(tmp_path / "results", Study("study", arms=("ddp", "single"), nodes=2, repeats=1, samples_scale=700.0))
    return tmp_path / "results"


def cell_of(results: Path) -> Path:
    return next((results / "study").glob("ddp-*"))


def hole(file: Path, size_bytes: int) -> None:
    with file.open("wb") as opened:
        opened.truncate(size_bytes)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\n" * (9 << 20), "has no event in 4 MB"),
        (b'{"event":"error"\n' * 200_000, ":1: "),
        (b'{"event":"step"\n{"event":"step"\n', ":1: "),
    ],
)
def test_events_that_are_none_are_refused_at_once(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "rank0.jsonl").write_bytes(content)
    with pytest.raises(RecordError, match=words):
        read_events(tmp_path / "rank0.jsonl")


@pytest.mark.timeout(10)
def test_a_hole_of_two_gigabytes_is_not_read(tmp_path: Path) -> None:
    hole(tmp_path / "rank0.jsonl", (2 << 30) - 1)
    with pytest.raises(RecordError, match="has no event in 4 MB"):
        read_events(tmp_path / "rank0.jsonl")


def test_lines_are_counted_across_blocks_and_torn_ones_left_out(results: Path, tmp_path: Path) -> None:
    whole = (cell_of(results) / "attempt-1" / "rank0.jsonl").read_bytes()
    copies = 1 + (10 << 20) // len(whole)
    file = tmp_path / "long.jsonl"
    file.write_bytes(b"\n\n" + whole * copies + b'{"event":"st')
    assert len(read_events(file)) == copies * whole.count(b"\n")
    file.write_bytes(b"\n\n" + whole * copies + b'{"event":"st\n' + whole)
    torn = 3 + copies * whole.count(b"\n")
    with pytest.raises(RecordError, match=f"long.jsonl:{torn}: "):
        read_events(file)


def test_a_hole_is_neither_merged_nor_read_by_verify(results: Path) -> None:
    log = cell_of(results) / "attempt-1" / "rank0.log"
    hole(log, 100 << 30)
    done = bwbench("merge", results, "--into", results.parent / "in")
    assert done.exit_code == 1
    assert "rank0.log is full of holes" in done.err
    assert len(list((results.parent / "in").glob("study/*/cell.json"))) == 1
    file = cell_of(results) / "status.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "files_sha256": {"attempt-1/rank0.log": "0"}}))
    assert "rank0.log: was changed" in bwbench("verify", results).out


def test_a_configuration_of_very_many_values_is_refused(results: Path) -> None:
    file = cell_of(results) / "cell.json"
    cell = json.loads(file.read_text())
    cell["config"]["more"] = {f"k{number}": number for number in range(MOST_VALUES)}
    file.write_text(json.dumps(cell))
    done = bwbench("status", results, "--json")
    assert [cell["status"] for cell in json.loads(done.out)["cells"]] == ["unreadable", "done"]
    assert "more than 20000 values" in done.out


def test_a_long_name_makes_no_table_long(results: Path) -> None:
    file = cell_of(results) / "cell.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "arm": "x" * 1_000_000}))
    assert len(bwbench("status", results).out) < 20_000


def test_folders_that_lie_too_deep_are_not_merged(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cell_of(results))
    for _ in range(sys.getrecursionlimit() + 200):
        os.mkdir("d")
        os.chdir("d")
    monkeypatch.undo()
    done = bwbench("merge", results, "--into", results.parent / "in")
    assert (done.exit_code, len(list((results.parent / "in").glob("study/*/cell.json")))) in ((1, 1), (0, 2))
    assert "Traceback" not in done.err
    subprocess.run(["rm", "-rf", cell_of(results)], check=True)  # pytest cannot


def test_a_published_cell_that_is_long_when_written_out_is_unreadable(results: Path) -> None:
    bwbench("publish", results, "--to", results.parent / "public")
    file = results.parent / "public" / "study" / PACKED
    first, *lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    head, cell = json.loads(first), json.loads(lines[0])
    head["shared"].append(["x" * 1000] * 100)
    cell["more"] = [{"=": len(head["shared"]) - 1}] * (MOST_OF_A_CELL // 1000)
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, (head, cell))).encode() + f"\n{lines[1]}".encode()))
    done = bwbench("verify", results.parent / "public")
    assert (done.exit_code, done.out.count("where a cell has 17 at most")) == (1, 1)
    assert "unreadable" in bwbench("status", results.parent / "public").out


def test_odd_names_of_folders_and_logs_hide_nothing(results: Path) -> None:
    cell = cell_of(results)
    file = cell / "status.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "status": "failed", "reason": "bad"}))
    (cell / "attempt-1" / f"rank0{ODD_BYTES}.log").write_text("x")
    other = next((results / "study").glob("single-*"))
    other.rename(other.with_name(f"a\nb{other.name}"))
    done = bwbench("publish", results, "--to", results.parent / "public")
    assert done.exit_code == 0
    assert "is no name that a folder may have; rename it" in done.err
    odd = results.rename(results.with_name(ODD_BYTES))
    for format in ("html", "latex", "markdown"):
        assert bwbench("report", odd, "--format", format, "--out", odd.parent / "report").exit_code == 0


@pytest.mark.parametrize("command", [("export", "--to", "csv"), ("report",)])
def test_no_output_takes_the_place_of_a_pipe_or_a_device(results: Path, command: tuple[str, ...]) -> None:
    pipe, link = results.parent / "pipe", results.parent / "link"
    os.mkfifo(pipe)
    link.symlink_to("pipe")
    for out in (pipe, link):
        done = bwbench(command[0], results, *command[1:], "--out", out)
        assert done.exit_code in (1, 2)
        assert "it is a pipe, which no file replaces" in done.err
    assert stat.S_ISFIFO(pipe.stat().st_mode) and link.is_symlink()


def test_a_working_directory_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    done = bwbench("plan", "experiment.yaml")
    monkeypatch.undo()
    assert (done.exit_code, done.err.count("\n")) == (2, 1)


def test_a_name_that_is_too_long_for_any_file_is_said() -> None:
    done = bwbench("status", "k" * 5000)
    assert (done.exit_code, done.err.count("\n")) == (2, 1)
    assert "File name too long" in done.err
