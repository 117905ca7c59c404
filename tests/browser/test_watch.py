"""The page of ``bwbench watch`` in a real browser, while records change below it."""

from __future__ import annotations

import fcntl
import json
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.records.lock import CLAIM
from bwbench.results.page import watch
from bwbench.results.page.watch import open_server
from tests.browser.conftest import Opened

pytestmark = pytest.mark.timeout(600)
STUDY = Study("wifi", arms=("ddp", "ring-fp16", "threshold", "single"), bandwidths_mbps=(1.0, 10.0), repeats=2,
              limit_s=30.0, step_time_s=0.03)  # fmt: skip


@contextmanager
def served(results: Path, port: int = 0):
    with open_server(results, port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Sweep:
    """A sweep that has been run already, and is played back: cells become planned, running and done again."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.whole = results.with_name("whole")
        write_study(self.whole, STUDY)
        self.names = sorted(folder.name for folder in (self.whole / "wifi").iterdir())
        for name in self.names:
            (results / "wifi" / name).mkdir(parents=True)
            shutil.copy(self.whole / "wifi" / name / "cell.json", results / "wifi" / name)

    def name(self, start: str) -> str:
        return next(name for name in self.names if name.startswith(start))

    @contextmanager
    def running(self, start: str, share: float):
        """The cell with the first part of its records, as a process holds it."""
        source, folder = self.whole / "wifi" / self.name(start), self.results / "wifi" / self.name(start)
        (folder / "attempt-1").mkdir(exist_ok=True)
        for file in (source / "attempt-1").iterdir():
            lines = file.read_text().splitlines(keepends=True)
            kept = lines[: max(1, int(share * len(lines)))] if file.suffix == ".jsonl" else lines
            (folder / "attempt-1" / file.name).write_text("".join(kept))
        with (folder / CLAIM).open("w") as claim:
            claim.write(json.dumps({"pid": 7, "host": "bench", "since_unix_s": 1.0, "phase": "training"}))
            claim.flush()
            fcntl.flock(claim, fcntl.LOCK_EX)
            yield
        (folder / CLAIM).unlink()

    def end(self, *starts: str) -> None:
        for start in starts:
            source, folder = self.whole / "wifi" / self.name(start), self.results / "wifi" / self.name(start)
            shutil.copytree(source, folder, dirs_exist_ok=True)


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(watch, "MOST_SHARE", 1.0)
    return Sweep(tmp_path / "results")


@contextmanager
def browsing(chromium, url: str):
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    try:
        yield Opened(context.new_page(), url)
    finally:
        context.close()


def asked(opened: Opened) -> None:
    """Have the page ask now, and not in two seconds."""
    opened.page.evaluate("ask()")


def test_cells_appear_as_they_finish_and_curves_as_they_train(chromium, sweep):
    with served(sweep.results) as server, browsing(chromium, server.url) as opened:
        page = opened.page
        assert "0 of 14 cells done" in opened.text("#live")
        assert "No evaluation was recorded" in opened.text("#curves-chart")
        with sweep.running("ring-fp16-cnn-10mbps-r0", 0.5):
            asked(opened)
            live = opened.text("#live")
            assert (
                "ring-fp16 at 10 Mbit/s" in live and "training on bench (process 7)" in live and "% of at most" in live
            )
            traces = "document.getElementById('curves-chart').data"
            assert page.evaluate("state.bandwidth") == 1e7 == float(page.input_value("#bandwidth")), "it follows"
            assert page.evaluate(f"{traces}.length") == 1 and "trains" in page.evaluate(f"{traces}[0].text")
            points = page.evaluate(f"{traces}[0].x.length")
        with sweep.running("ring-fp16-cnn-10mbps-r0", 0.9):
            asked(opened)
            assert page.evaluate(f"{traces}[0].x.length") > points
        sweep.end("ring-fp16-cnn-10mbps-r0", "ddp-cnn-10mbps-r0")
        page.wait_for_function("() => document.getElementById('live').textContent.includes('2 of 14 cells done')")
        assert "ring-fp16" in opened.text("#numbers") and "was first: " in opened.text("#recommendation")
        opened.drawn_after(lambda: page.select_option("#bandwidth", label="10 Mbit/s"))
        assert not page.is_checked("#following"), "the reader looks at something by now"
        with sweep.running("ring-fp16-cnn-1mbps-r1", 0.5):
            asked(opened)
            assert page.evaluate("state.bandwidth") == 1e7
            opened.drawn_after(lambda: page.check("#following"))
            assert page.evaluate("state.bandwidth") == 1e6 == float(page.input_value("#bandwidth"))
        sweep.end(*sweep.names)
        asked(opened)
        assert "14 of 14 cells done" in opened.text("#live") and "bandwidth" in opened.text("#times-chart")
        assert opened.complaints == []
        assert {url.partition("?")[0] for url in opened.requests if not url.startswith("data:")} == {
            server.url, f"{server.url}payload.json",
        }  # fmt: skip


def test_no_choice_is_lost(chromium, sweep):
    sweep.end("ddp", "ring-fp16-cnn-1mbps-r0", "ring-fp16-cnn-10mbps-r0", "single-cnn-unshaped-r0")
    with served(sweep.results) as server, browsing(chromium, server.url) as opened:
        page = opened.page
        opened.drawn_after(lambda: page.select_option("#bandwidth", label="10 Mbit/s"))
        opened.drawn_after(lambda: page.click('#arms .chip:has-text("ddp") input'))
        page.fill("#target-number", "80")
        opened.drawn_after(lambda: page.press("#target-number", "Enter"))
        opened.drawn_after(lambda: page.fill("#my-bandwidth", "3"))
        page.fill("#cells-text", "ring")
        page.click("[data-sort=seed]")
        page.click("#cells-body .expand >> nth=0")
        name = page.get_attribute("#cells-body .expand >> nth=0", "aria-label")
        page.focus("#cells-text")
        before = page.evaluate("[state.bandwidth, [...state.hiddenArms], state.target, state.table, state.link]")
        drawn = page.evaluate("Number(document.body.dataset.drawn)")
        sweep.end("ring-fp16-cnn-1mbps-r1", "ring-fp16-cnn-10mbps-r1", "threshold")
        asked(opened)
        assert page.evaluate("Number(document.body.dataset.drawn)") > drawn
        after = page.evaluate("[state.bandwidth, [...state.hiddenArms], state.target, state.table, state.link]")
        assert after == before and before[1] == ["ddp"] and before[2] == pytest.approx(0.8, abs=0.003)
        assert not page.is_checked('#arms .chip:has-text("ddp") input')
        assert float(page.input_value("#target-number")) == pytest.approx(100 * before[2], abs=0.01)
        assert page.input_value("#cells-text") == "ring" and page.input_value("#my-bandwidth") == "3"
        assert page.locator("#cells-body .details").count() == 1
        assert page.get_attribute("#cells-body tr.open .expand", "aria-label") == name
        assert page.evaluate("document.activeElement.id") == "cells-text"
        write_study(sweep.results, Study("another", arms=("int8", "ddp"), repeats=1, limit_s=5.0))
        asked(opened)  # arms have other numbers now, and there is one filter more
        assert page.is_visible("#experiment") and page.evaluate("state.group.experiment") == 1
        assert not page.is_checked('#arms .chip:has-text("ddp") input') and page.is_checked("#arms input >> nth=0")
        assert page.evaluate("[state.bandwidth, [...state.hiddenArms], state.target]") == before[:3]
        assert opened.complaints == []


def test_it_survives_what_befalls_a_sweep(chromium, sweep):
    sweep.end("ddp-cnn-10mbps-r0")
    with served(sweep.results) as server:
        port = server.server_port
        with browsing(chromium, server.url) as opened:
            page = opened.page
            failed = sweep.results / "wifi" / sweep.name("threshold-cnn-10mbps-r0")
            status = json.loads((sweep.whole / "wifi" / failed.name / "status.json").read_text())
            (failed / "status.json").write_text(json.dumps({**status, "status": "failed", "reason": "<b>boom</b>"}))
            with sweep.running("ring-fp16-cnn-10mbps-r0", 0.5):
                asked(opened)
                assert "1 failed" in opened.text("#live") and "ring-fp16 at" in opened.text("#live")
            asked(opened)  # killed
            assert "1 unfinished" in opened.text("#live") and "ring-fp16 at" not in opened.text("#live")
            half = sweep.results / "wifi" / sweep.name("ddp-cnn-10mbps-r1") / "status.json"
            half.write_text('{"id": "')
            asked(opened)
            assert "Left out: " in opened.text("#live .warning") and "ddp-cnn-10mbps-r1" in opened.text("#live")
            half.unlink()
            asked(opened)
            assert page.locator("#live .warning").count() == 0
            assert opened.complaints == []
            server.shutdown()
            server.server_close()
            asked(opened)
            assert "does not answer" in opened.text("#live .warning") and "1 of 14 cells done" in opened.text("#live")
            sweep.end("single-cnn-unshaped-r0")
            with served(sweep.results, port):
                page.wait_for_function("() => !('lost' in document.body.dataset)")
                assert "2 of 14 cells done" in opened.text("#live") and page.locator("#live .warning").count() == 0
