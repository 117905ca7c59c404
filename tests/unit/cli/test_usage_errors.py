"""What is said where the words of a command are wrong: in one line, with the value, what is allowed, and what next."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.cli.main import _run

WRONG = [
    (["run"], ["Missing argument 'FILE'", "for example: bwbench run ", "bwbench run --help"]),
    (["run", "a.yaml", "b.yaml"], ["(b.yaml)", "`bwbench sweep` takes several files"]),
    (["runn"], ["Did you mean 'run'?"]),
    (["export", "here"], ["Missing option '--to'", "parquet, csv, json", "for example: "]),
    (["export", "here", "--to", "xml"], ["'xml' is not one of 'parquet', 'csv', 'json'"]),
    (["plan", "a.yaml", "--order-seed", "x"], ["'--order-seed'", "whole number"]),
    (["list", "algorithms", "--nodes", "1"], ["'--nodes'", "2 or more"]),
    (["plan"], ["no FILES are named", "no folder experiments here", "`bwbench init`"]),
    (["sweep", "."], ["no experiment files (*.yaml) in the folder .", "name files, or another folder"]),
    (["plan", "nope.yaml"], ["nope.yaml: no such file", "holds no experiment file (*.yaml)", "`bwbench init`"]),
    (["plan", "nowhere/nope.yaml"], ["no such file", "There is no folder nowhere", "is the path right from here"]),
    (["plan", "nope.yaml", "--mode", "ful"], ["--mode 'ful' is no mode. Did you mean 'full'?"]),
    (["run", "nope.yaml", "--part", "timings"], ["--part 'timings' is no kind of runs. Did you mean 'timing'?"]),
    (["status", "results"], ["there is no folder results", "`bwbench run FILE`"]),
    (["show", "x"], ["no folder results", "--results"]),
    (["show", "x", "--results", "."], ["no cell 'x' below .", "holds none at all", "--results"]),
    (["verify", "nowhere/results"], ["there is no folder nowhere/results; name"]),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_wrong_words(
    words: list[str],
    said: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1, err
    assert all(text in err for text in said), err
    assert "Input should be" not in err and list(tmp_path.iterdir()) == []
