"""The report page of a thousand made-up cells in Chromium: its size, how soon it is drawn, how soon a filter answers.

Ten arms, ten bandwidths, ten repeats; the curves of no two cells are alike. ``load_s`` is from opening the file until
all charts are drawn. A filter's time is from the event until everything that depends on it stands in the document:
all the work that the page does, without the painting that follows. Exit status 1 where the page is larger than 10 MB;
times are a matter of the machine.

Usage: python benchmarks/report_page.py [--json FILE] [--quick] [--out report.html]
Needs Chromium and playwright (extra [test]); BWBENCH_CHROMIUM names another browser.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bwbench.records import iter_cells
from bwbench.records.schema import PARTS
from bwbench.results.page.payload import build_payload
from bwbench.results.page.render import render_page

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from fixtures_records import Study, cell_of  # noqa: E402

LIMIT_BYTES = 10_000_000
NUM_CELLS, NUM_EVALUATIONS = 1000, 60
ARMS = (
    "single",
    "no-communication",
    "ddp",
    "ring",
    "ring-fp16",
    "threshold",
    "bytegrad",
    "qadam",
    "local-sgd",
    "top-k",
)
BANDWIDTHS_MBPS = (1.0, 2.0, 5.0, 10.0, 20.0, 54.0, 100.0, 200.0, 300.0, 1000.0)


def write_cells(root: Path, repeats: int) -> int:
    """Cells as composed ones are kept: a file each, quickly written, and with a curve of their own."""
    study = Study("sweep", arms=ARMS, bandwidths_mbps=BANDWIDTHS_MBPS, repeats=repeats, medium="switched")
    written = 0
    for bandwidth in BANDWIDTHS_MBPS:
        for repeat in range(repeats):
            for arm in ARMS:
                cell = cell_of(study, arm, bandwidth, repeat)
                cell["config"]["dataset"]["name"] = "digits"
                if (
                    arm == "single"
                ):  # planned once over all links: here a run a bandwidth, so that there are 1,000 cells
                    cell["id"] = f"{cell['id'][:7]}{BANDWIDTHS_MBPS.index(bandwidth):03d}"
                _write(root / "sweep" / f"{cell['slug']}-{cell['id']}", cell, bandwidth, repeat)
                written += 1
    return written


def _write(folder: Path, cell: dict[str, Any], bandwidth_mbps: float, repeat: int) -> None:
    folder.mkdir(parents=True)
    number = ARMS.index(cell["arm"])
    sent_s = 0.0 if number < 2 else 0.4 / (number + 1) / bandwidth_mbps
    step_s = (0.05 + 0.002 * number + sent_s) * (1 + 0.01 * repeat)
    curve = [
        {"step": 10 * k, "samples": 1280 * k, "clock_s": 10 * k * step_s, "target_met": k == NUM_EVALUATIONS - 1,
         "accuracy": round(0.96 * (1 - 0.93 ** (k + 0.1 * number + 0.2 * repeat)), 4)}
        for k in range(NUM_EVALUATIONS)
    ]  # fmt: skip
    mean_s = {**dict.fromkeys(PARTS, 0.0), "compute_s": step_s - sent_s, "link_s": sent_s}
    ledger = {"mean_s": mean_s, "median_s": mean_s, "step_mean_s": step_s, "step_median_s": step_s, "num_steps": 600,
              "num_ranks": 4, "peers_known": True, "peers_reason": None, "estimated": False,
              "additivity_error": 0.0}  # fmt: skip
    composed = {"schema": 1, "id": cell["id"], "interval_s": None}
    end = curve[-1]
    status = {**composed, "slug": cell["slug"], "status": "done", "reason": "target", "composed": composed,
              "time_to_target_s": end["clock_s"], "samples_to_target": end["samples"], "final_metric": end["accuracy"],
              "training_clock_s": end["clock_s"], "steps": end["step"], "samples": end["samples"]}  # fmt: skip
    pair = {
        "asked_goodput_bps": bandwidth_mbps * 1e6,
        "achieved_goodput_bps": bandwidth_mbps * (0.99e6 + number),
        "asked_rtt_s": 0.005,
    }
    link = {"backend": "relay", "achieved_before": {"verdict": "ok", "pairs": [pair]}}
    environment = {"host": "bench", "cpu": "Example", "cores": 2, "kernel": "6.8.0", "time_unix_s": 1.7e9}
    content = {**composed, "curve": curve, "ledger": ledger, "link": link, "environment": environment}
    for name, value in (("cell.json", cell), ("status.json", status), ("composed.json", content)):
        (folder / name).write_text(json.dumps(value))


def measure(path: Path, browser_path: str, tries: int) -> dict[str, float]:
    """Seconds until the page is drawn, and milliseconds of each filter: the median of some tries."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"], timeout=180_000)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(180_000)
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        loads = []
        for _ in range(tries):
            page.goto(path.as_uri())
            page.wait_for_selector("body[data-drawn]", state="attached")
            loads.append(page.evaluate("performance.now()") / 1e3)
        found = {"load_s": statistics.median(loads), "complaints": float(len(complaints))}

        def timed(action: str) -> float:
            script = f"(() => {{ const t = performance.now(); {action}; return performance.now() - t; }})()"
            return statistics.median(page.evaluate(script) for _ in range(max(3, tries)))

        found["bandwidth_ms"] = timed("state.bandwidth = state.bandwidth === 1e7 ? 1e8 : 1e7; drawAll(true)")
        found["target_ms"] = timed("state.target = Number((0.7 + 0.2 * Math.random()).toFixed(3)); drawAll(true)")
        found["arm_ms"] = timed("state.hiddenArms = new Set(state.hiddenArms.size ? [] : ['ddp']); drawAll(true)")
        found["words_ms"] = timed("state.table.text = state.table.text ? '' : 'ring 10mbps'; drawTable()")
        browser.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--quick", action="store_true", help="a fifth of the cells, one try")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the page")
    options = parser.parse_args()
    browser_path = os.environ.get("BWBENCH_CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder:
        num_cells = write_cells(Path(folder), NUM_CELLS // 100 // (5 if options.quick else 1))
        begun_s = time.perf_counter()
        html = render_page(build_payload(list(iter_cells(Path(folder))), "a thousand cells"))
        row: dict[str, Any] = {
            "num_cells": num_cells,
            "bytes": len(html.encode()),
            "make_s": time.perf_counter() - begun_s,
        }
        path = options.out or Path(folder) / "report.html"
        path.write_text(html, encoding="utf-8")
        if browser_path is None:
            print("no Chromium: the size alone was measured", file=sys.stderr)
        else:
            row |= measure(path.resolve(), browser_path, 1 if options.quick else 3)
    for name, value in row.items():
        print(f"{name:14} {value:>12,.4g}" if isinstance(value, float) else f"{name:14} {value:>12,}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": [row]}, indent=1) + "\n")
    return int(row["bytes"] > LIMIT_BYTES or bool(row.get("complaints")))


if __name__ == "__main__":
    sys.exit(main())
