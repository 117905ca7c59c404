"""Whatever lies in a result folder: a command says what is wrong with it, hides nothing else, and writes nowhere else.

Records are somebody else's as often as not. Each round breaks several cells at once and runs the commands on them, as
the console script does; the seeds are fixed, so that a failure comes again.
"""

from __future__ import annotations

import gzip
import random
import shutil
from pathlib import Path

import pytest
from fixtures_broken import SECRET, break_one
from fixtures_commands import bwbench, everything_in
from fixtures_composed import compose
from fixtures_records import Study, write_study

from bwbench.base.registry import FIGURES
from bwbench.records import iter_cells
from bwbench.results.analysis.results import Reader, read_cells, results_of
from bwbench.results.publish import publish

AT_ONCE = {"results": 6, "published": 2}  # records that are broken in a round
ROUNDS = 40  # of folders, each seed
PACKED_ROUNDS = 220
STUDY = Study("study", arms=("ddp", "ring-fp16", "single"), repeats=2, nodes=2, samples_scale=700.0)
COMMANDS_TERMINAL = frozenset("\x1b\x07\x08\x9b\r\u202e")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good records, as folders and published, and a file that is none of them."""
    top = tmp_path_factory.mktemp("whole")
    (top / "elsewhere").mkdir()
    (top / "elsewhere" / "secret").write_text(f"{SECRET}\n")
    folders = write_study(top / "results", STUDY)
    compose(next(folder for folder in folders if folder.name.startswith("ring") and "r0" in folder.name))
    list(publish(top / "results", top / "published"))
    return top


def look_at(top: Path, number: int, names: list[str]) -> None:
    """Run the commands on ``top / "results"``: all the quick ones, and in turn those that take longer.

    Args:
        names: of the cells' folders.
    """
    results, out = top / "results", top / "out"
    study = results / "study"
    before = everything_in(top)
    commands: list[tuple[object, ...]] = [
        ("status", study), ("status", results, "--json"), ("compare", study, "--baseline", "ddp"),
        ("export", results, "--to", "csv"),
    ]  # fmt: skip
    commands += [("show", study / name) for name in random.Random(number).sample(names, 2)]
    commands += [
        [("publish", results, "--to", out / "published"), ("show", "ddp", "--results", results, "--json")],
        [("merge", results, "--into", out / "merged"), ("status", results, "--spent")],
        [("report", study, "--format", "latex", "--out", out / "report.tex")],
        [
            ("export", study, "--to", "csv", "--what", "evaluations"),
            ("export", study, "--to", "json", "--what", "steps"),
        ],
        [("report", study, "--format", "markdown", "--out", out / "report.md")],
        [("report", study, "--out", out / "report.html")],
    ][number % 6]
    if number % 30 == 0:
        figure = ["time-to-accuracy", "accuracy-over-time", "step-time"][number // 30 % 3]
        commands.append(("plot", study, "--figure", figure, "--format", "png", "--out", out / "figures"))
    for command in commands:
        done = bwbench(*command)
        assert done.exit_code in (0, 1, 2), (command, done)
        assert done.exit_code == 0 or done.err.strip(), f"{command} fails without a word"
        said = done.out + done.err
        assert "Traceback" not in said, (command, said[-3000:])
        assert not COMMANDS_TERMINAL & set(said), (command, said[-3000:])
        assert SECRET not in said, command
    written = everything_in(top) - before
    assert all(Path(name).is_relative_to(out) for name in written), written
    assert not [name for name in written if Path(name).is_file() and holds_secret(Path(name))]


def holds_secret(file: Path) -> bool:
    content = file.read_bytes()
    return SECRET.encode() in (gzip.decompress(content) if file.suffix == ".gz" else content)


def tables_of(results: Path) -> None:
    """The tables of all figures; drawing them takes longer."""
    reader = Reader()
    cells, _ = read_cells(iter_cells(results), reader)
    for group in results_of(cells, reader):
        for name in FIGURES.names():
            figure = FIGURES.load(name)()
            if figure.why_not(group) is None:
                figure.table(group)


def rounds(whole: Path, tmp_path: Path, source: str, names: tuple[str, ...], seed: int, count: int) -> None:
    """Break copies of ``source``, and look at each.

    Args:
        names: patterns below it of the files to break.
    """
    rng, total = random.Random(seed), 0
    for number in range(count):
        top = tmp_path / "now"
        shutil.copytree(whole / "elsewhere", top / "elsewhere")
        shutil.copytree(whole / source, top / "results", symlinks=True)
        broken: list[Path] = []
        for _ in range(AT_ONCE[source]):
            if files := sorted({file for name in names for file in (top / "results").glob(name)}):
                broken.append(rng.choice(files))
                break_one(broken[-1], rng, top / "elsewhere" / "secret")
        total += len(broken)
        try:
            look_at(top, number, sorted(folder.name for folder in (whole / "results" / "study").glob("*-*")))
            tables_of(top / "results") if number % 10 == 5 and source == "results" else None
        except BaseException as error:
            where = [str(file.relative_to(top)) for file in broken]
            raise AssertionError(f"round {number} of seed {seed}, with {where} broken") from error
        shutil.rmtree(top)
    assert total > 0.6 * count * AT_ONCE[source]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2, 3, *(pytest.param(more, marks=pytest.mark.thorough) for more in range(4, 12))])
def test_folders(whole: Path, tmp_path: Path, seed: int) -> None:
    names = ("study/*/*.json", "study/*/attempt-1/*.json", "study/*/attempt-1/*", "study/*/attempt-1/rank0.jsonl")
    rounds(whole, tmp_path, "results", names, seed, ROUNDS)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, *(pytest.param(more, marks=pytest.mark.thorough) for more in (2, 3, 4))])
def test_published_records(whole: Path, tmp_path: Path, seed: int) -> None:
    rounds(whole, tmp_path, "published", ("study/cells.jsonl.gz",), seed, PACKED_ROUNDS)
