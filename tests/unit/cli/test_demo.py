"""``bwbench demo``: it says what it will do, runs the example, draws it, and ends with the answer and what is next."""

from __future__ import annotations

from pathlib import Path

import fixtures_matrices
import pytest

from bwbench.base.examples import DEMO, example_file, example_names
from bwbench.cli import carry_out
from bwbench.cli.main import _run


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many trainings each call of the scheduler was given, in place of running them: their results are made up."""
    calls: list[int] = []

    def run_cells(sweep, *_: object, **__: object) -> None:
        calls.append(len(sweep.todo))
        fixtures_matrices.write_matrix(sweep.todo[0].folder.parents[1], example_file(DEMO))

    monkeypatch.setitem(fixtures_matrices.BEST, "accuracy", 1.1)  # so that all reach 93 %
    monkeypatch.setattr(carry_out, "_run_cells", run_cells)
    return calls


def test_from_the_question_to_the_answer(ran: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["demo", str(tmp_path / "my results")]) == 0
    said = capsys.readouterr()
    own = tmp_path / "my results" / DEMO
    assert said.err.startswith("Question: four laptops")
    assert "7 of 7 trainings to run, 2 to 5 minutes" in said.err and str(own) in said.err
    lines = said.out.splitlines()
    assert any(line.endswith("time-to-accuracy.png") for line in lines)
    answer = next(number for number, line in enumerate(lines) if line.startswith("Answer: Four nodes, "))
    assert "One repeat says nothing about chance. [" in lines[answer]
    assert "One node alone needs" in lines[answer + 1] and "worth it on this link" in lines[answer + 1]
    assert "bwbench report" in lines[-2] and f"'{own}'" in lines[-2]
    assert lines[-1].endswith("bwbench init")
    assert ran == [7]


def test_where_cells_are_not_done_no_answer_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(carry_out, "carry_out", lambda *_, **__: 1)
    assert _run(["demo", str(tmp_path)]) == 1
    assert "Answer" not in capsys.readouterr().out


def test_the_example_is_the_file_of_the_repository() -> None:
    assert example_file(DEMO) == Path(__file__).parents[3] / "configs" / f"{DEMO}.yaml"
    assert {"bandwidth_sweep", "slow_laptop"} < set(example_names())
