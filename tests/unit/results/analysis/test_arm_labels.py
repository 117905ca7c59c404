"""Short names of arms: as short as the others leave them, never two alike; and what differs in more than one thing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures_records import Study, write_study

from bwbench.records import iter_cells
from bwbench.records.cell_identity import recorded_identity
from bwbench.records.schema import CellRecord
from bwbench.results.analysis.arm_labels import arm_labels, recorded_name, unlike_arms_note


def cell(arm: str, collective: str, codec: str, algorithm: str = "every-step", **config: Any) -> CellRecord:
    made = {"algorithm": {"name": algorithm}, "collective": {"name": collective}, "compression": [{"name": codec}]}
    about = {"schema": 1, "id": "0123456789", "slug": arm, "experiment": "x", "repeat": 0}
    return CellRecord.model_validate({**about, "arm": arm, "config": {"nodes": 2, "batch_size": 8, **made, **config}})


DDP = cell("ddp", "torch", "none")
MINE = cell("scatter-gather-mine", "scatter-gather", "mine")


def test_a_codec_has_its_own_name_unless_collectives_or_algorithms_vary() -> None:
    assert arm_labels([DDP, MINE]) == {"ddp": "ddp", "scatter-gather-mine": "mine"}
    other = cell("ring-mine", "ring", "mine")
    assert set(arm_labels([DDP, MINE, other]).values()) == {"ddp", "scatter-gather-mine", "ring-mine"}
    seldom = cell("local-sgd-ring-mine", "ring", "mine", "local-sgd")
    assert arm_labels([DDP, seldom])["local-sgd-ring-mine"] == "local-sgd-mine"


def test_names_of_the_literature_stay() -> None:
    cells = [cell("ring-fp16", "ring", "fp16"), cell("bytegrad", "scatter-gather", "int8"), DDP]
    cells.append(cell("parameter-server", "parameter-server", "none"))
    assert all(name == label for name, label in arm_labels(cells).items())


def test_options_are_short_and_tell_apart() -> None:
    names = ["int4(error_feedback=False)", "int4(error_feedback={'decay': 0.95})", "int4(ratio=0.0156250001,block=8)"]
    labels = arm_labels([cell(f"scatter-gather-{name}", "scatter-gather", "int4") for name in names])
    assert sorted(labels.values()) == ["int4(decay=0.95)", "int4(no error_feedback)", "int4(ratio=0.01563, block=8)"]


def test_of_long_options_those_are_left_out_that_all_of_a_name_have() -> None:
    shared = "outer_momentum=0.9,outer_lr=0.7"
    cells = [cell(f"diloco(period={period},{shared})", "ring", "fp16", "diloco") for period in (16, 64)]
    assert sorted(arm_labels(cells).values()) == ["diloco(period=16)", "diloco(period=64)"]
    alone = arm_labels(cells[:1])
    assert list(alone.values()) == ["diloco(period=16, outer_momentum=0.9, outer_lr=0.7)"]


def test_no_label_is_that_of_another_arm() -> None:
    mine = cell("ring-bytegrad", "ring", "bytegrad")  # a codec of somebody's, called as a method is
    labels = arm_labels([mine, cell("bytegrad", "scatter-gather", "int8")])
    assert labels == {"ring-bytegrad": "ring-bytegrad", "bytegrad": "bytegrad"}
    rounded = [cell(f"top-k(ratio=0.1234{last})", "all-gather", "top-k") for last in (51, 52)]
    assert len(set(arm_labels(rounded).values())) == 2


def test_an_arm_is_found_by_both_names() -> None:
    labels = arm_labels([DDP, MINE])
    assert recorded_name("mine", labels) == recorded_name("scatter-gather-mine", labels) == "scatter-gather-mine"
    assert recorded_name("nobody", labels) == "nobody"


@pytest.mark.parametrize(
    ("arms", "said"),
    [
        (("ring", "ring-fp16"), None),
        (("ring", "ring-fp16", "single", "no-communication"), None),
        (("ddp", "ring", "parameter-server"), None),
        (("ddp", "ring-fp16"), "codec and collective (fp16 over ring; no codec over torch)"),
        (
            ("ddp", "parameter-server", "ring-fp16"),
            "codec and collective (no codec over parameter-server or torch; fp16 over ring)",
        ),
    ],
)
def test_what_differs_in_more_than_one_thing_is_said(tmp_path: Path, arms: tuple[str, ...], said: str | None) -> None:
    write_study(tmp_path, Study(arms=arms, repeats=1))
    note = unlike_arms_note(iter_cells(tmp_path))
    assert note == (None if said is None else f"Arms differ in more than one thing: {said}.")


def test_rates_of_their_own_are_said(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring", "threshold"), repeats=1))
    note = unlike_arms_note(iter_cells(tmp_path))
    assert note is not None and note.endswith("; optimizer lr.")


def test_of_another_optimizer_its_own_options_are_not_said(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring", "threshold"), repeats=1))
    (file,) = tmp_path.glob("study/threshold-*/cell.json")
    cell = json.loads(file.read_text())
    cell["config"]["optimizer"] = {"name": "muon", "lr": 0.02, "scale": "original", "steps": 5}
    before, cell["id"] = cell["id"], recorded_identity(cell["config"])
    file.write_text(json.dumps(cell))
    file.parent.rename(str(file.parent).replace(before, cell["id"]))
    note = unlike_arms_note(iter_cells(tmp_path))
    assert note is not None and note.endswith("; optimizer lr; optimizer.")


def test_an_average_of_the_weights_is_said_where_another_arm_has_none() -> None:
    average = {"weight_average": {"name": "ema"}}
    outer = cell("muloco-1", "none", "none", "muloco-1", **average)
    with_it = cell("single(weight_average=ema)", "ring", "none", "single", **average)
    alone = cell("single", "ring", "none", "single")
    assert arm_labels([alone, with_it, outer])["muloco-1"] == "muloco-1(weight_average=ema)"
    assert arm_labels([outer])["muloco-1"] == "muloco-1"
