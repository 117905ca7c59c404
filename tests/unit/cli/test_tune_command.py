"""``bwbench tune`` as a user calls it, without trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bwbench.cli import tuning_run
from bwbench.cli.main import _run
from bwbench.running.tuning.search import progress, searches_of
from bwbench.running.tuning.table import entry_of, read_rows, write_table
from tests.unit.running.tuning.tables import BASE, Quiet, Trainer, load, on


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seed", "0"], "is one of the seeds"),
        (["--retry", "diverged"], "allowed: failed, timeout, invalid"),
        (["--output", "study.yaml"], "not a table of tuned learning rates"),
        (["--set", "model=mpl"], "Did you mean 'mlp'?"),
        (["--widen", "99"], "--widen"),
    ],
)
def test_mistakes_are_said_before_anything_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(BASE)
    assert _run(["tune", "study.yaml", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]


def test_two_experiments_fill_one_table_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each adds its entries to what the table holds when they are found, not to what it held at the begin."""
    table, results, train = tmp_path / "rates.yaml", tmp_path / "results", tuning_run.run_searches

    def meanwhile(searches: Any, folder: Path, predicted_s: Any, observer: Any, ended: Any, *_: Any) -> None:
        other = searches_of(load(tmp_path, BASE.replace("nodes: 2", "nodes: 3"), tuning=True), seed=1000)
        train(other, folder, [1.0], Quiet(), lambda *_: None, on(Trainer(lambda lr: {"samples": 100})))
        write_table(table, "other", 1000, [entry_of(search, progress(search, folder)) for search in other])
        train(searches, folder, predicted_s, Quiet(), ended, on(Trainer(lambda lr: {"samples": 200})))

    load(tmp_path, BASE, tuning=True)
    monkeypatch.setattr(tuning_run, "run_searches", meanwhile)
    monkeypatch.chdir(tmp_path)
    assert _run(["tune", "study.yaml", "--results", str(results)]) == 0
    assert [row.entry.nodes for row in read_rows(table, 1000, ())] == [3, 2]
