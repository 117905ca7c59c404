"""Machine time: each run counts once, whichever cells rest on it."""

from __future__ import annotations

from pathlib import Path

from bwbench.records import iter_cells
from bwbench.results.analysis.spent import spent

RESULTS = Path(__file__).parents[4] / "results" / "published"


def test_a_cell_that_could_not_be_composed_has_no_time_beside_that_of_its_runs() -> None:
    cells = list(iter_cells(RESULTS / "topology"))
    undone = {f"topology/{cell.cell.id}" for cell in cells if cell.status is not None and cell.status.undone_part}
    (found,), total = spent(cells)
    assert undone and not undone & found.whole_s.keys()
    assert total.total_s == found.total_s and found.whole_s
