"""Every record as a type: read as it was written, in old shapes too, and refused in one way."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, TextIO

import pytest

from bwbench.base.errors import RecordError
from bwbench.records import EventWriter, files, iter_cells, read_events, read_record, readable, write_record
from bwbench.records.schema import (
    Applied,
    CellRecord,
    Composed,
    Environment,
    Evaluation,
    LedgerParts,
    LinkRecord,
    MeasuredPair,
    Measurement,
    RankError,
    Start,
    Status,
    Step,
    event_of,
    finite,
    parse_event,
)
from bwbench.records.schema.record import Record

RESULTS = Path(__file__).parents[3] / "results" / "published"
CELL = {"schema": 1, "id": "0123456789", "slug": "ring", "experiment": "study", "arm": "ring", "repeat": 0,
        "config": {"nodes": 2}}  # fmt: skip
STATUS = {"schema": 1, "id": "0123456789", "slug": "ring", "status": "done"}


def test_every_published_record_is_read_and_written_alike() -> None:
    cells, refused = readable(iter_cells(RESULTS))
    assert not refused and len(cells) > 1200
    for cell in cells:
        for record, raw in (
            (cell.cell, cell.raw("cell.json")),
            (cell.status, cell.raw("status.json")),
            (cell.composed_beside, cell.raw("composed.json")),
            (None if cell.composed else cell.link, None if cell.composed else cell.raw("link.json")),
            (None if cell.composed else cell.environment, None if cell.composed else cell.raw("environment.json")),
        ):
            assert json.dumps(record.to_json() if record is not None else None) == json.dumps(raw)


def test_fields_come_in_their_order_and_only_those_that_were_given() -> None:
    whole = Status(id="a", slug="b", status="done", wall_s=2.0, resumed_from=None, overhead_s=None, steps=3)
    assert list(whole.to_json()) == ["schema", "id", "slug", "status", "resumed_from", "wall_s", "overhead_s", "steps"]
    composed = Status(id="a", slug="b", status="failed", wall_s=2.0, undone_part="c/attempt-1")
    assert list(composed.to_json()) == ["schema", "id", "slug", "status", "undone_part", "wall_s"]
    step = Step(step=1, samples=32, clock_s=0.5, loss=finite(math.nan), duration_s=0.5, ledger=LedgerParts(pad_s=0.1))
    text = '{"event":"step","step":1,"samples":32,"clock_s":0.5,"loss":null,"duration_s":0.5,"ledger":{"pad_s":0.1}}\n'
    assert files.dump_line(step.to_json()) == text
    assert parse_event(text, "here", "") == step
    host = Environment(host="anna", address="10.0.0.1", interface="wlan0")
    both = host.model_copy(update={"hosts": (host, host)}).to_json()
    assert list(both) == ["address", "interface", "schema", "host", "hosts"]
    assert list(both["hosts"][1]) == ["address", "interface", "schema", "host"]  # type: ignore[index, call-overload, arg-type]


def test_events_are_told_apart_by_their_kind() -> None:
    for content, kind in (
        ({"event": "start"}, Start),
        ({"event": "error", "type": "E", "message": "m"}, RankError),
        ({"event": "eval", "split": "test", "step": 1, "samples": 2, "clock_s": 1, "mean": {"loss": None}}, Evaluation),
    ):
        assert type(event_of(content)) is kind
    assert event_of({"event": "phase", "phase": "ready"}) is None
    with pytest.raises(RecordError, match="no kind of event"):
        parse_event('{"event":"pause"}', "rank0.jsonl:3", "get it anew")


def test_what_was_applied_has_one_shape_whoever_applied_it() -> None:
    relay = {"bandwidth_bps": 1e7, "up_bps": 1e7, "down_bps": 1e7, "nodes": {"3": {"up_bps": 1e6}}, "priority": "low"}
    rates = {"up": {"rate_bytes_per_s": 125_000}, "down": {"rate_bytes_per_s": 1_250_000}}
    usual = {"up": {"rate_bytes_per_s": 1_250_000}, "down": {"rate_bytes_per_s": 1_250_000}}
    shapes = [{"nodes": [0, 1, 2], **usual}, {"nodes": [3], **rates}]
    netem = {"bandwidth_bps": 1e7, "up_bps": 1e7, "down_bps": 1e7, "seed_applied": True, "shapes": shapes}
    one, other = Applied.model_validate(relay), Applied.model_validate(netem)
    assert one.nodes == other.nodes and one.nodes["3"].up_bps == 1e6
    assert one.bandwidth_bps == other.bandwidth_bps and len(other.qdiscs) == 2 and one.priority == "low"
    assert Applied.model_validate(other.to_json()) == other, "what was converted is read again"
    assert "shapes" not in other.to_json()


@pytest.mark.parametrize(
    ("model", "change", "said"),
    [
        (CellRecord, {"config": {}}, "nodes is missing"),
        (CellRecord, {"config": {"nodes": True}}, "nodes is no whole number"),
        (
            CellRecord,
            {"config": {"nodes": 2, "compute": {"step_time": "fast"}}},
            "compute.step_time is 'fast', which is no duration",
        ),
        (CellRecord, {"config": {"nodes": 2, "target": {"accuracy": "high"}}}, "no number as its value"),
        (CellRecord, {"config": [1]}, "config: [1] is not a mapping"),
        (CellRecord, {"arm": 7}, "arm: 7 is not text"),
        (CellRecord, {"schema": 2}, "schema 2 is newer than this bwbench reads (1); use a newer bwbench"),
        (Status, {"status": "finished"}, "status: 'finished' is not allowed here"),
        (Status, {"steps": True}, "steps: true is not a whole number"),
        (Status, {"steps": 10**30}, "steps: "),
        (Status, {"time_to_target_s": "12 s"}, "time_to_target_s: '12 s' is not a number"),
        (Status, {"time_to_target_s": math.nan}, "time_to_target_s: "),
        (Status, {"composed": {"timing": "x"}}, "composed.convergence: 'convergence' is missing"),
        (LinkRecord, {"achieved_before": {"pairs": [{"src": 0}]}}, "achieved_before.pairs[0].dst: 'dst' is missing"),
        (Composed, {"kinds": 3, "id": "x", "convergence": "a", "timing": "b"}, "kinds: 3 is not a list"),
        (Environment, {"cores": 2.5}, "cores: "),
    ],
)
def test_what_does_not_fit_is_refused_by_file_and_field(
    tmp_path: Path, model: type[Record], change: dict[str, Any], said: str
) -> None:
    base = CELL if model is CellRecord else STATUS if model is Status else {"schema": 1}
    path = tmp_path / "status.json"
    path.write_text(json.dumps({**base, **change}))
    with pytest.raises(RecordError) as caught:
        read_record(model, path)
    assert str(caught.value).startswith(f"{path}: ") and said in str(caught.value)
    assert "delete it to run the cell again" in str(caught.value) or "newer" in said


def test_more_fields_do_no_harm_and_a_missing_file_is_none(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    assert read_record(Status, path) is None
    path.write_text(json.dumps({**STATUS, "mood": "good", "composed": None}))
    found = read_record(Status, path)
    assert found is not None and found.status == "done"
    write_record(path, found)
    assert json.loads(path.read_text()) == {**STATUS, "composed": None}


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "huge", "deep", "cut off", "not UTF-8", "no rights"])
def test_no_file_hangs_or_floods_the_reader(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "link.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    elif kind == "no rights":
        path.symlink_to(path.name)  # a circle: nobody may follow it
    else:
        texts = {"deep": b"[" * 200_000, "cut off": b'{"schema": 1', "not UTF-8": b'{"backend": "\xff"}'}
        path.write_bytes(texts[kind])
    with pytest.raises(RecordError, match="link.json"):
        read_record(LinkRecord, path)
    if kind in ("cut off", "deep", "not UTF-8"):
        assert read_events(path) == []  # a last line that is cut off is left out
    else:
        with pytest.raises(RecordError, match="link.json"):
            read_events(path)
    assert files.read_json(path) is None and files.read_last_events(path) == []
    assert files.read_first_event(path) is None


class Full:
    """A file on a disk that has room for some letters."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        self._file.write(text[:20])

    def flush(self) -> None:
        self._file.flush()
        raise OSError("no room")


def test_what_a_full_disk_cut_off_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rank0.jsonl"
    writer = EventWriter(path)
    writer.write(Start())
    writer.flush()
    whole = writer._file
    monkeypatch.setattr(writer, "_file", Full(whole))
    writer.write(Start())
    with pytest.raises(OSError, match="no room"):
        writer.flush()
    monkeypatch.setattr(writer, "_file", whole)  # there is room again
    writer.write(RankError(type="OSError", message="the disk is full"))
    writer.close()
    assert [event.event for event in read_events(path)] == ["start", "error"]
    with path.open("a") as file:
        file.write(files.dump_line(Start().to_json()))
    with pytest.raises(RecordError):
        read_events(path)


def test_a_torn_last_line_is_left_out_and_another_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    path.write_text('{"event":"start"}\n{"event":"err')
    assert read_events(path) == [Start()]
    path.write_text('{"event":"start"}\n{"event":"err\n{"event":"start"}\n')
    with pytest.raises(RecordError, match=r"rank0\.jsonl:2: not readable as JSON"):
        read_events(path)
    assert files.read_last_events(path) == [Start(), Start()]


def test_what_was_measured_of_a_dilated_link_is_told_in_the_time_of_the_one_that_was_asked() -> None:
    pair = MeasuredPair(src=0, dst=1, asked_bps=2.5e6, achieved_goodput_bps=2.4e6, achieved_rtt_s=0.04, asked_loss=0.1)
    before = Measurement(verdict="ok", pairs=(pair,))
    found = LinkRecord(dilation=4.0, achieved_before=before).in_asked_time
    (told,) = found.achieved_before.pairs if found.achieved_before is not None else ()
    assert (told.asked_bps, told.achieved_goodput_bps, told.achieved_rtt_s) == (10e6, 9.6e6, 0.01)
    assert told.asked_loss == 0.1 and told.asked_rtt_s is None and found.achieved_after is None
    assert found.in_asked_time is found
    plain = LinkRecord(achieved_before=before)
    assert plain.in_asked_time is plain
