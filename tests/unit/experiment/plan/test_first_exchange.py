"""Which methods a plan warns of: those whose target may come before their nodes have sent anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.experiment.plan import assess, foresee
from bwbench.experiment.plan.first_exchange import may_arrive_alone
from tests.unit.experiment.plan.records import STUDY, finished, of, planned_cells

ARMS = "single, no-communication, ring, local-sgd, diloco"  # with periods of 16 and 50 steps


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def make(*overrides: str):
        text = STUDY.replace("ring, local-sgd", ARMS)
        cells, _ = planned_cells(tmp_path, monkeypatch, *overrides, text=text)
        planned = assess(cells, tmp_path / "results")
        return cells, planned, foresee(planned)

    return make


def test_a_first_exchange_late_in_the_limit_is_said_once_for_each_method(study) -> None:
    _, planned, foreseen = study()
    (found,) = may_arrive_alone(planned, foreseen)  # 200 steps are the limit
    assert found.startswith("diloco: nodes send nothing before step 50, 25 % of the limit. ")
    late = study("limit.samples=5120")[1:]
    assert [line.partition(" of the")[0] for line in may_arrive_alone(*late)] == [
        "local-sgd: nodes send nothing before step 16, 20 %",
        "diloco: nodes send nothing before step 50, 62 %",
    ]
    assert may_arrive_alone(*study("limit.samples=64000")[1:]) == []


@pytest.mark.parametrize("change", ["target=null", "evaluate.every=3200 samples"])
def test_nothing_is_said_where_nobody_looks_before(study, change: str) -> None:
    assert may_arrive_alone(*study(change)[1:]) == []


def test_a_limit_before_the_first_exchange_is_said_however_seldom_one_looks(study) -> None:
    (found,) = may_arrive_alone(*study("limit.samples=2560", "evaluate.every=2560 samples", "algorithm=diloco")[1:])
    assert "before step 50, and training ends at its limit, after step 40." in found


@pytest.mark.parametrize(("steps", "warned"), [(36, True), (50, False), (90, False)])
def test_finished_repeats_tell(study, steps: int, warned: bool) -> None:
    cells, planned, foreseen = study()
    done = of(cells, "diloco", "10 Mbit/s")
    reached = {"samples_to_target": steps * done.config.global_batch}
    foreseen.calibration.note(done, finished(done, foreseen.estimates[done.id], steps, **reached))
    found = may_arrive_alone(planned, foreseen)
    assert len(found) == warned
    if warned:
        assert "before step 50, and finished repeats were at the target in step 36." in found[0]
