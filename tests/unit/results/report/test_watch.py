"""The server of ``bwbench watch``, asked as a browser asks it, beside records that change, break and vanish."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures_records import Study, write_study

from bwbench.base.errors import ConfigError, RecordError
from bwbench.records.lock import CLAIM
from bwbench.results.page import watch
from bwbench.results.page.watch import Watched, WatchServer, open_server
from bwbench.results.publish import publish

STUDY = Study(
    "wifi", arms=("ddp", "ring-fp16", "single"), repeats=2, limit_s=20.0,
    statuses={("ddp", 1): ("missing", ""), ("ring-fp16", 1): ("unfinished", "")},
)  # fmt: skip


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(watch, "MOST_SHARE", 1.0)
    write_study(tmp_path / "results", STUDY)
    return tmp_path / "results"


@pytest.fixture
def server(results: Path) -> Iterator[WatchServer]:
    with open_server(results, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: WatchServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=sent)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def cells_of(payload: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rows = [dict(zip(payload["columns"], row, strict=True)) for row in payload["cells"]]
    return {row["slug"]: row for row in rows}


def folder_of(results: Path, start: str) -> Path:
    return next((results / "wifi").glob(f"{start}-*"))


def test_the_page_asks_its_own_server_alone(server: WatchServer) -> None:
    status, headers, page = ask(server, "/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cache-Control"] == "no-store" and headers["X-Frame-Options"] == "DENY"
    assert "Access-Control-Allow-Origin" not in headers and "Python" not in headers["Server"]
    text = page.decode()
    assert "connect-src 'self'" in text and 'data-records="' in text and "askAgain" in text
    status, headers, content = ask(server, "/payload.json")
    assert status == 200 and headers["ETag"].strip('"') in text
    assert json.loads(content)["live"] == {"problem": None, "unreadable": []}


def test_what_is_known_already_is_not_sent_again(server: WatchServer, results: Path) -> None:
    _, headers, _ = ask(server, "/payload.json")
    status, _, content = ask(server, "/payload.json", If_None_Match=headers["ETag"])
    assert (status, content) == (304, b"")
    folder = folder_of(results, "single-cnn")
    record = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**record, "status": "failed", "reason": "boom"}))
    status, newer, content = ask(server, "/payload.json", If_None_Match=headers["ETag"])
    assert status == 200 and newer["ETag"] != headers["ETag"]
    assert {cell["reason"] for cell in cells_of(json.loads(content)).values()} >= {"boom"}


def test_a_cell_runs_for_as_long_as_somebody_holds_it(server: WatchServer, results: Path) -> None:
    def ring() -> dict[str, Any]:
        return cells_of(json.loads(ask(server, "/payload.json")[2]))["ring-fp16-cnn-10mbps-r1"]

    assert ring()["status"] == "unfinished"
    folder = folder_of(results, "ring-fp16-cnn-10mbps-r1")
    with (folder / CLAIM).open("w") as claim:
        claim.write(json.dumps({"pid": 7, "host": "bench", "since_unix_s": 1.0, "phase": "starting workers"}))
        claim.flush()
        fcntl.flock(claim, fcntl.LOCK_EX)
        running = ring()
        assert running["status"] == "running" and running["reason"] == "training on bench (process 7)"
        assert running["values"] is not None, "its curve so far"
        for rank in sorted((folder / "attempt-1").glob("rank*.jsonl")):
            events = [json.loads(line) for line in rank.read_text().splitlines()]
            evaluation, last = next(event for event in events if event["event"] == "eval"), events[-1]["samples"]
            with rank.open("a") as file:
                newer = {**evaluation, "step": 9999, "samples": last + 5, "clock_s": 99.0}
                file.write(json.dumps(newer) + "\n" + '{"event": "ste')
        payload = json.loads(ask(server, "/payload.json")[2])
        grown = cells_of(payload)["ring-fp16-cnn-10mbps-r1"]
        assert payload["pools"]["samples_at"][grown["samples_at"]][-1] == last + 5, "a torn line hides nothing"
    assert ring()["status"] == "unfinished", "its process was killed: the lock is gone, the file is not"


def test_a_broken_record_is_named_and_the_others_stay(server: WatchServer, results: Path) -> None:
    folder = folder_of(results, "ddp-cnn-10mbps-r0")
    before = len(json.loads(ask(server, "/payload.json")[2])["cells"])
    whole = (folder / "status.json").read_bytes()
    (folder / "status.json").write_bytes(whole[: len(whole) // 2])
    payload = json.loads(ask(server, "/payload.json")[2])
    assert len(payload["cells"]) == before - 1
    (problem,) = payload["live"]["unreadable"]
    assert str(folder) in problem
    (folder / "status.json").write_bytes(whole)
    payload = json.loads(ask(server, "/payload.json")[2])
    assert len(payload["cells"]) == before and payload["live"]["unreadable"] == []


def test_what_was_seen_last_stands_where_nothing_is_left(server: WatchServer, results: Path) -> None:
    before = json.loads(ask(server, "/payload.json")[2])
    moved = results.with_name("moved")
    shutil.move(results, moved)
    after = json.loads(ask(server, "/payload.json")[2])
    assert after["cells"] == before["cells"] and "there is no folder" in after["live"]["problem"]
    assert ask(server, "/")[0] == 200
    shutil.move(moved, results)
    assert json.loads(ask(server, "/payload.json")[2]) == before
    shutil.rmtree(results / "wifi")
    assert "no records any more" in json.loads(ask(server, "/payload.json")[2])["live"]["problem"]


def test_a_cell_that_vanishes_while_it_is_read_disturbs_nobody(
    server: WatchServer, results: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = folder_of(results, "ddp-cnn-10mbps-r0")
    before = len(json.loads(ask(server, "/payload.json")[2])["cells"])
    read = watch.Reader.read

    def vanishing(reader: watch.Reader, cell: Any) -> Any:
        if cell.path == gone:
            shutil.rmtree(gone, ignore_errors=True)
        return read(reader, cell)

    monkeypatch.setattr(watch.Reader, "read", vanishing)
    (gone / "status.json").touch()
    (gone / "cell.json").touch()
    status, _, content = ask(server, "/payload.json")
    assert status == 200 and len(json.loads(content)["cells"]) >= before - 1
    status, _, content = ask(server, "/payload.json")
    assert status == 200 and len(json.loads(content)["cells"]) == before - 1
    assert capfd.readouterr().err == ""


def test_new_experiments_appear(server: WatchServer, results: Path) -> None:
    write_study(results, Study("later", arms=("ddp",), repeats=1, limit_s=5.0))
    assert json.loads(ask(server, "/payload.json")[2])["experiments"] == ["later", "wifi"]


def test_published_cells_are_shown_where_they_are_asked_for(results: Path) -> None:
    published = next(iter(publish(results)))
    shutil.rmtree(results / "wifi")
    watched = Watched(results, published=True)
    first = watched.seen()
    assert len(first.payload["cells"]) == published.num_cells and watched.seen() is first
    content = published.path.read_bytes()
    os.utime(published.path, (1.0, 1.0))
    assert watched.seen().content == first.content
    write_study(results, Study("later", arms=("ddp",), repeats=1, limit_s=2.0))
    assert watched.seen().payload["experiments"] == ["later", "wifi"]
    published.path.write_bytes(content[: len(content) // 2])
    live = watched.seen().payload["live"]
    assert live["problem"] and "cells.jsonl.gz" in live["problem"]


def test_a_cell_is_read_once(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(results)
    first = watched.seen()
    read: list[Path] = []
    digest_of = watch.Reader.read
    monkeypatch.setattr(watch.Reader, "read", lambda reader, cell: read.append(cell.path) or digest_of(reader, cell))
    assert watched.seen() is first and read == []


def test_looking_takes_a_small_share_of_the_time(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_SHARE", 0.05)
    clock = iter([100.0, 102.0, 139.0, 140.0, 140.0, 140.5])
    watched = Watched(results, lambda: next(clock))
    looks: list[int] = []
    look = watched._look
    monkeypatch.setattr(watched, "_look", lambda: looks.append(1) or look())
    watched.seen()  # from 100 s to 102 s, so that the next look is 38 s later
    watched.seen()
    assert len(looks) == 1
    watched.seen()
    assert len(looks) == 2


def test_only_this_machine_reads_and_nobody_writes(server: WatchServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    for host in ("evil.example", f"evil.example:{server.server_port}", "localhost.evil.example", "127.0.0.1:80:80", ""):
        assert ask(server, "/", Host=host)[0] == 403
    for host in (f"localhost:{server.server_port}", "127.0.0.1:9000", "localhost"):  # a tunnel has a port of its own
        assert ask(server, "/", Host=host)[0] == 200
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        status, headers, _ = ask(server, "/", method)
        assert status == 405 and headers["Allow"] == "GET, HEAD"
    for path in ("/../../etc/passwd", "/favicon.ico", "/payload", "/payload.json/"):
        assert ask(server, path)[0] == 404
    status, headers, content = ask(server, "/payload.json", "HEAD")
    assert status == 200 and content == b"" and int(headers["Content-Length"]) > 1000


def test_a_browser_that_leaves_disturbs_nobody(server: WatchServer, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    assert ask(server, "/payload.json")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_port_in_use_is_one_line_with_what_to_do(server: WatchServer, results: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        open_server(results, server.server_port)
    assert str(refused.value) == (
        f"--port: {server.server_port} is in use; choose another one, or --port 0 for any that is free"
    )


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="holds no records any more"):
        open_server(tmp_path, 0)
    write_study(tmp_path, Study("one", arms=("ddp",), repeats=1, limit_s=2.0))
    next(tmp_path.glob("one/*/cell.json")).write_text("{")
    with pytest.raises(RecordError, match="no cell can be read"):
        open_server(tmp_path, 0)
