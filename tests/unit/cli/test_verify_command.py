"""``bwbench verify``: what it finds in records that were changed, and that it finds nothing in those that were not."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures_records import Study, write_study

from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK, ConfigError
from bwbench.cli.result_commands import publish
from bwbench.cli.verify_command import verify
from bwbench.records import CellFolder, read_json, read_record, write_json_atomic, write_record
from bwbench.records.checksums import checksums, with_checksums
from bwbench.records.own_and_published import taken
from bwbench.records.schema import Status
from bwbench.results.analysis.cells import cell_row
from bwbench.results.analysis.plausibility import capacity_of
from bwbench.results.analysis.trial import summarise
from bwbench.results.verify import verify as verified

PUBLISHED = Path(__file__).parents[3] / "results" / "published"
STUDY = Study(arms=("ring", "ddp", "single"), repeats=1)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for cell in write_study(tmp_path / "results", STUDY):
        status = read_record(Status, cell / "status.json")
        assert status is not None
        write_record(cell / "status.json", with_checksums(status, cell))
    return tmp_path / "results"


def cell_of(results: Path, arm: str = "ring") -> Path:
    return next((results / "study").glob(f"{arm}-*"))


def edit(file: Path, **fields: object) -> None:
    write_json_atomic(file, {**read_json(file), **fields})


def findings(folder: Path) -> list[str]:
    return [f"{finding.check}: {finding.text}" for one in verified(taken(folder)) for finding in one.findings]


def test_all_that_is_published_passes_but_for_checksums(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify([PUBLISHED]) == EXIT_OK
    said = capsys.readouterr()
    assert said.out == "" and "0 with findings" in said.err
    assert "852 cell(s): checksum: it was published without a checksum" in said.err


def test_untouched_records_pass_as_folders_and_as_a_published_set(results: Path, tmp_path: Path) -> None:
    assert verify([results]) == EXIT_OK and findings(results) == []
    publish(results, to=tmp_path / "public")
    assert verify([tmp_path / "public"]) == EXIT_OK
    assert not any(one.unchecked for folder in (results, tmp_path / "public") for one in verified(taken(folder)))


def test_a_planted_time_is_found(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(cell_of(results) / "status.json", time_to_target_s=0.001)
    assert verify([results]) == EXIT_CELLS_FAILED
    out = capsys.readouterr().out
    assert "plausibility: time_to_target_s is 0.001, its events give" in out
    assert "plausibility: time_to_target_s is 0.001, its curve meets the target at" in out


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"samples": 7}, "a step has 128 samples"),
        ({"payload_bytes": 10**12}, "its link takes"),
        ({"training_clock_s": 0.5}, "training_clock_s only 0.5"),
        ({"final_metric": 0.999}, "its curve ends with"),
        ({"censored_at_s": 3.0}, "one of them at most"),
        ({"samples_to_target": 1}, "samples_to_target is 1, its curve says"),
        ({"time_to_target_s": None}, "time_to_target_s is missing"),
        ({"wall_s": 0.1}, "wall_s only 0.1"),
        ({"wire_bytes": 1}, "less than the payload_bytes"),
        ({"payload_bytes": 1000}, "something was sent that the method does not count"),
        ({"evaluation_s": -1.0}, "evaluation_s is -1, below 0"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_what_cannot_be_is_found(results: Path, fields: dict[str, object], words: str, packed: bool) -> None:  # noqa: FBT001
    edit(cell_of(results) / "status.json", **fields)
    if packed:
        publish(results)
        for cell in [path for path in (results / "study").iterdir() if path.is_dir()]:
            shutil.rmtree(cell)
    assert any(words in finding for finding in findings(results)), findings(results)


def test_the_payload_of_a_shrunk_cell_crosses_its_share_of_the_link(tmp_path: Path) -> None:
    for shrink, told in ((1.0, False), (4.0, True)):
        results = tmp_path / f"shrink{shrink:g}"
        (cell,) = write_study(results, Study(arms=("ring",), repeats=1, extra={"shrink": shrink}))
        capacity_bps = capacity_of(CellFolder(cell).cell.config)
        clock_s = read_json(cell / "status.json")["training_clock_s"]
        assert capacity_bps is not None
        edit(cell / "status.json", payload_bytes=round(0.9 * capacity_bps * clock_s / 8))
        assert any("its link takes" in finding for finding in findings(results)) == told
        assert cell_row(CellFolder(cell))["shrink"] == shrink


def test_virtual_nodes_take_turns_and_may_count_a_second_twice(results: Path) -> None:
    cell = cell_of(results)
    edit(cell / "status.json", wall_s=0.1, overhead_s=-1.0)
    for virtual, told in ((False, True), (True, False)):
        edit(cell / "attempt-1" / "environment.json", virtual=virtual)
        found = [one for one in findings(results) if "wall_s only" in one or "overhead_s is -1, below 0" in one]
        assert len(found) == 2 * told


def test_less_on_the_wire_than_payload_is_right_where_ranks_share_a_host(results: Path) -> None:
    cell = cell_of(results)
    edit(cell / "status.json", wire_bytes=1)
    for shared, told in ((False, True), (True, False)):
        hosts = [{"address": f"10.0.0.{rank // (1 + shared)}", "interface": "eth0"} for rank in range(4)]
        edit(cell / "attempt-1" / "environment.json", hosts=hosts)
        assert any("less than the payload_bytes" in finding for finding in findings(results)) == told


def test_a_record_that_was_changed_added_or_removed_is_found(results: Path) -> None:
    cell = cell_of(results)
    log, events = cell / "attempt-1" / "rank0.log", cell / "attempt-1" / "rank1.jsonl"
    log.write_text("nothing to see\n")
    (cell / "attempt-1" / "notes.txt").write_text("added")
    link = cell / "attempt-1" / "link.json"
    found = findings(results)
    assert "checksum: attempt-1/rank0.log: was changed after the cell had ended" in found
    assert "checksum: attempt-1/notes.txt: was added after the cell had ended" in found
    events.unlink()
    assert "checksum: attempt-1/rank1.jsonl: is missing" in findings(results)
    link.unlink()
    os.mkfifo(link)
    (only,) = findings(results)
    assert "schema: " in only and "link.json: is a pipe" in only


@pytest.mark.parametrize("kept", [(), ("cell.json",), ("cell.json", "attempt-1/rank0.jsonl")])
def test_checksums_that_were_left_out_are_found(results: Path, kept: tuple[str, ...]) -> None:
    cell = cell_of(results)
    edit(cell / "status.json", files_sha256={name: checksums(cell)[name] for name in kept})
    found = findings(results)
    assert "checksum: attempt-1/rank0.log: was added after the cell had ended" in found
    assert ("checksum: cell.json: was added after the cell had ended" in found) == (not kept)


def test_an_attempt_that_has_begun_since_is_no_finding_and_neither_is_any_name(results: Path) -> None:
    cell = cell_of(results)
    shutil.copytree(cell / "attempt-1", cell / "attempt-2")
    assert findings(results) == []
    edit(cell / "status.json", files_sha256={**checksums(cell), f"{'x' * 5000}/y": "0", "a\0b/c": "0"})
    assert findings(results) == []


def summed_anew(cell: Path) -> None:
    """As somebody would do it who forges events, and knows what status.json is made of."""
    folder = CellFolder(cell)
    assert folder.status is not None and folder.link is not None
    made = summarise(folder.events(), folder.cell.config, folder.link.wire).to_json()
    edit(cell / "status.json", **made, files_sha256=checksums(cell))


def with_events(cell: Path, change: Callable[[dict[str, Any]], object]) -> None:
    for file in (cell / "attempt-1").glob("*.jsonl"):
        events = [json.loads(line) for line in file.read_text().splitlines()]
        for event in events:
            change(event)
        file.write_text("".join(f"{json.dumps(event)}\n" for event in events))


def test_a_clock_that_its_steps_do_not_fit_on_is_found(results: Path) -> None:
    with_events(cell_of(results), lambda event: "clock_s" in event and event.update(clock_s=0.97 * event["clock_s"]))
    summed_anew(cell_of(results))
    assert any(", its steps took " in finding for finding in findings(results))


def test_an_evaluation_before_its_step_is_found(results: Path) -> None:
    with_events(
        cell_of(results), lambda event: event["event"] == "eval" and event.update(clock_s=0.9 * event["clock_s"])
    )
    summed_anew(cell_of(results))
    assert any(" its last step before ended at " in finding for finding in findings(results))


def test_events_of_another_cell_or_of_too_few_ranks_are_found(results: Path) -> None:
    ring, ddp = cell_of(results), cell_of(results, "ddp")
    shutil.rmtree(ring / "attempt-1")
    shutil.copytree(ddp / "attempt-1", ring / "attempt-1")
    summed_anew(ring)
    assert any(f"attempt-1/rank0.jsonl: is that of {ddp} too" in finding for finding in findings(results))
    (ddp / "attempt-1" / "rank1.jsonl").unlink()
    summed_anew(ddp)
    assert any("events are those of rank 0, 2, 3, and there are 4 nodes" in finding for finding in findings(results))


def test_what_only_a_forger_writes_is_found(results: Path) -> None:
    cell = cell_of(results)
    link = read_json(cell / "attempt-1" / "link.json")
    link["requested"]["bandwidth"] = "99 Mbit/s"
    write_json_atomic(cell / "attempt-1" / "link.json", link)
    edit(cell / "status.json", attempt=7, step_median_s=1e-4, wall_s=1e6, files_sha256=checksums(cell))
    found = "\n".join(findings(results))
    assert "link.json says that bandwidth 99 Mbit/s was asked, cell.json 10 Mbit/s" in found
    assert "attempt is 7, and there is no attempt-7 beside attempt-1" in found
    assert "step_median_s is 0.0001, its events give" in found
    assert "wall_s is 1e+06, its parts (with overhead_s) are" in found


def test_a_published_file_with_a_cell_twice_is_found(results: Path) -> None:
    publish(results, to=results.parent / "public")
    file = results.parent / "public" / "study" / "cells.jsonl.gz"
    first, *lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    head = json.loads(first)
    head["cells"].append(head["cells"][-1])
    file.write_bytes(gzip.compress("\n".join([json.dumps(head), *lines, lines[-1]]).encode()))
    (only,) = findings(results.parent / "public")
    assert "names a cell twice" in only


def test_attempts_that_were_cleaned_away_are_no_finding(results: Path) -> None:
    cell = cell_of(results)
    shutil.copytree(cell / "attempt-1", cell / "attempt-2")
    edit(cell / "status.json", attempt=2, files_sha256=checksums(cell))
    shutil.rmtree(cell / "attempt-1")
    assert findings(results) == []


def test_a_published_cell_that_was_changed_is_found(results: Path) -> None:
    publish(results)
    file = results / "published" / "study" / "cells.jsonl.gz"
    text = gzip.decompress(file.read_bytes()).decode()
    for cell in [path for path in (results / "study").iterdir() if path.is_dir()]:
        shutil.rmtree(cell)
    file.write_bytes(gzip.compress(text.replace('"host":"bench-1"', '"host":"bench-2"').encode()))
    assert len(findings(results)) == 3
    assert set(findings(results)) == {"checksum: the published cell was changed after it had been published"}


def test_wrong_ids_and_broken_records_are_findings_and_hide_nothing(results: Path) -> None:
    cell = cell_of(results)
    content = read_json(cell / "cell.json")
    content["config"]["batch_size"] = 64
    write_json_atomic(cell / "cell.json", content)
    (cell_of(results, "ddp") / "status.json").write_text("{")
    (results / "broken").mkdir()
    (results / "broken" / "cells.jsonl.gz").write_bytes(b"no gzip")
    kinds = sorted(finding.partition(":")[0] for finding in findings(results))
    assert kinds == ["id", "schema", "schema"] and len(list(verified(taken(results)))) == 4


def test_hidden_cells_are_looked_at(results: Path) -> None:
    cell = cell_of(results)
    shutil.copytree(cell, results / "study" / ".timing" / cell.name)
    edit(results / "study" / ".timing" / cell.name / "status.json", steps=1)
    assert any("a step has" in finding for finding in findings(results))


def test_json_says_what_was_not_checked(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = read_json(cell_of(results) / "status.json")
    write_json_atomic(cell_of(results) / "status.json", {key: content[key] for key in content if key != "files_sha256"})
    assert verify([results], json=True) == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert (found["num_cells"], found["num_bad"]) == (3, 0)
    (unchecked,) = [finding for cell in found["cells"] for finding in cell["unchecked"]]
    assert unchecked == {"check": "checksum", "text": "it has none: it ended under an earlier version"}


def test_a_folder_without_records_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no records"):
        verify([tmp_path])
    with pytest.raises(ConfigError, match="nowhere"):
        verify([tmp_path / "nowhere"])
