"""Result folders for the report page: every kind of cell, and names that would be markup if nobody took care."""

from __future__ import annotations

import json
from pathlib import Path

from fixtures_records import Study, write_study

from bwbench.records import CellFolder, iter_cells
from bwbench.results.analysis.results import Reader

SCRIPT_ARM = "</script><script>window.hacked=1</script>"
IMAGE_ARM = "<img src=x onerror=window.hacked=2>"
SCRIPT_REASON = "rank 0: <b onmouseover=window.hacked=3>&amp;</b>"

ARMS = ("single", "no-communication", "ddp", "ring-fp16", "threshold", "int8", "qsgd")


def write_page_study(root: Path) -> list[CellFolder]:
    """Seven arms at three bandwidths, three repeats: some censored, composed, failed, missing; two named as markup."""
    study = Study(
        "sweep", arms=ARMS, bandwidths_mbps=(1.0, 10.0, 100.0), repeats=3, limit_s=14.0, medium="switched",
        samples_scale=3000.0, statuses={("qsgd", 2): ("failed", SCRIPT_REASON), ("int8", 2): ("missing", "")},
    )  # fmt: skip
    write_study(root, study)
    cells = list(iter_cells(root))
    for cell in cells:
        arm = {"int8": SCRIPT_ARM, "qsgd": IMAGE_ARM}.get(cell.cell.arm)
        if arm:
            _change(cell.path / "cell.json", arm=arm)
        if cell.cell.arm == "ring-fp16" and cell.cell.config["link"]["bandwidth"] == "10 Mbit/s":
            _compose(cell)
    return list(iter_cells(root))


def _compose(cell: CellFolder) -> None:
    """The cell as if it had been put together: its own curve and ledger, and an interval of the timing run."""
    reading, time_s = Reader().read(cell), cell.status.time_to_target_s
    interval_s = [0.98 * time_s, 1.02 * time_s] if time_s else None
    about = {"schema": 1, "id": cell.cell.id, "convergence": "c", "timing": cell.cell.id, "interval_s": interval_s}
    content = {**about, "curve": [point.to_json() for point in reading.curve], "link": cell.raw("link.json"),
               "environment": cell.raw("environment.json")}  # fmt: skip
    content["ledger"] = reading.ledger.to_json() if reading.ledger else None
    (cell.path / "composed.json").write_text(json.dumps(content))
    _change(cell.path / "status.json", composed=about)


def _change(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
