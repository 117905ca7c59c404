"""What an arm is in a comparison: as its cell recorded it, and for an older cell as its components say by now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.methods.roles import HEADROOM, METHOD, REFERENCE
from bwbench.records import CellFolder, iter_cells
from bwbench.results.analysis.cells import concerns_no_link, is_reference, standing_of
from bwbench.results.analysis.results import load_results
from bwbench.results.figures.captions import arm_label
from bwbench.results.figures.style import arm_style


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_study(tmp_path, Study(arms=("ring", "single"), repeats=1, limit_s=0.3))
    return tmp_path


def say(folder: Path, arm: str, **fields: str | None) -> CellFolder:
    """The cell of ``arm`` with these fields in its cell.json; None takes one out."""
    (file,) = (file for file in folder.rglob("cell.json") if json.loads(file.read_text())["arm"] == arm)
    content = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    (cell,) = (cell for cell in iter_cells(folder) if cell.cell.arm == arm)
    return cell


def test_a_recorded_role_wins_over_the_components(folder: Path) -> None:
    cell = say(folder, "ring", role=REFERENCE, kinship="nobody else").cell
    assert vars(standing_of(cell)) == {"role": REFERENCE, "kinship": "nobody else"}
    assert is_reference(cell) and concerns_no_link(cell)
    cell = say(folder, "single", role=METHOD, kinship="single").cell
    assert standing_of(cell).role == METHOD and not is_reference(cell)


def test_without_a_recorded_role_the_components_say_it(folder: Path) -> None:
    ring, single = (say(folder, arm, role=None, kinship=None).cell for arm in ("ring", "single"))
    assert vars(standing_of(ring)) == {"role": METHOD, "kinship": "mean of all gradients"}
    assert vars(standing_of(single)) == {"role": REFERENCE, "kinship": "single"}


def test_a_role_of_a_later_version_is_a_methods(folder: Path) -> None:
    assert standing_of(say(folder, "single", role="judge", kinship="single").cell).role == METHOD


def test_figures_draw_an_arm_by_its_recorded_role(folder: Path) -> None:
    say(folder, "ring", role=HEADROOM, kinship="ring")
    (group,) = load_results(folder)
    assert group.roles == {"ring": HEADROOM, "single": REFERENCE}
    assert group.limits == ["single", "ring"]
    assert arm_style("ring", group.roles["ring"]) == arm_style("no-communication", HEADROOM)
    assert arm_label("ring", REFERENCE) == "ring (1 node)"
