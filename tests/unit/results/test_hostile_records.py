"""Records that somebody has made to do harm: each attack by itself, through the commands that it is aimed at."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures_broken import ESCAPES, SECRET
from fixtures_commands import bwbench, everything_in
from fixtures_records import Study, write_study

import bwbench as package
from bwbench.records import packed
from bwbench.records.cell_identity import recorded_identity
from bwbench.records.lock import claim_of

PACKAGE = Path(package.__file__).parent
COMMANDS_TERMINAL = frozenset("\x1b\x07\x08\x9b\r\u202e")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results of four cells, and beside them a file that no record is."""
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    write_study(tmp_path / "results", Study("study", arms=("ddp", "single"), nodes=2, repeats=2, samples_scale=700.0))
    return tmp_path / "results"


def cells_of(results: Path) -> list[Path]:
    return sorted(file.parent for file in results.glob("study/*/cell.json"))


def edited(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def configured(cell: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Another configuration under an id that is its own, as somebody would make it who means harm."""
    edited(cell / "cell.json", lambda content: change(content["config"]))
    new = str(recorded_identity(json.loads((cell / "cell.json").read_text())["config"]))
    for name in ("cell.json", "status.json"):
        edited(cell / name, lambda content: content.update(id=new))
    cell.rename(cell.with_name(f"{cell.name.rpartition('-')[0]}-{new}"))


def swapped(file: Path, make: Callable[[Path], object]) -> None:
    file.unlink(missing_ok=True)
    make(file)


def zero(file: Path) -> None:
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [os.mkfifo, zero])
@pytest.mark.parametrize(
    "name",
    ["status.json", "cell.json", "attempt-1/link.json", "attempt-1/rank0.jsonl", "attempt-1/rank0.log", ".claim"],
)
def test_a_pipe_or_a_device_makes_one_cell_unreadable_at_most(
    results: Path, name: str, make: Callable[[Path], object]
) -> None:
    victim = cells_of(results)[0]
    swapped(victim / name, make)
    done = bwbench("status", results)
    assert (done.exit_code, len(done.out.splitlines())) == (0, 5)
    top = results.parent
    for command in [
        ("show", victim),
        ("export", results, "--to", "csv", "--what", "steps"),
        ("publish", results, "--to", top / "out"),
        ("merge", results, "--into", top / "in"),
        ("report", results, "--format", "latex", "--out", top / "out.tex"),
    ]:
        assert bwbench(*command).exit_code in (0, 1)
    assert len(gzip.decompress((top / "out/study/cells.jsonl.gz").read_bytes()).splitlines()) >= 4


def test_a_claim_that_is_a_link_is_nobodys(results: Path) -> None:
    cell = cells_of(results)[0]
    (cell / ".claim").symlink_to(results.parent / "secret")
    assert claim_of(cell) is None


def test_a_lock_is_never_what_a_link_leads_to(results: Path) -> None:
    (results / "published" / "study").mkdir(parents=True)
    (results / "published" / "study" / ".lock").symlink_to(results.parent / "new")
    done = bwbench("publish", results)
    assert done.exit_code == 1
    assert "is a link" in done.err
    assert not (results.parent / "new").exists()


def test_a_published_file_that_unpacks_to_too_much_is_refused(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MOST_BYTES", 1 << 20)
    (results / "study" / packed.PACKED).write_bytes(gzip.compress(bytes(2 << 20)))
    done = bwbench("status", results)
    assert done.exit_code == 2
    assert "unpacks to more than 1 MB" in done.err
    assert packed.PACKED in done.err


@pytest.mark.parametrize("through", ["file", "folder"])
def test_a_linked_log_shows_no_foreign_file(results: Path, through: str) -> None:
    top = results.parent
    for cell in cells_of(results):
        edited(cell / "status.json", lambda status: status.update(status="failed", reason="rank 0 died", attempt=2))
        if through == "folder":
            (top / "elsewhere").mkdir(exist_ok=True)
            (top / "elsewhere" / "rank0.log").write_text(SECRET)
            (cell / "attempt-2").symlink_to(top / "elsewhere")
        else:
            (cell / "attempt-2").mkdir()
            (cell / "attempt-2" / "rank0.log").symlink_to(top / "secret")
    shown = bwbench("show", cells_of(results)[0])
    assert SECRET not in shown.out
    assert "leads out of the cell's folder" in shown.out
    bwbench("publish", results, "--to", top / "out")
    bwbench("report", results, "--out", top / "report.html")
    assert SECRET.encode() not in gzip.decompress((top / "out/study/cells.jsonl.gz").read_bytes())
    assert SECRET not in (top / "report.html").read_text()


@pytest.mark.parametrize("name", ["../../out-of-here", "/tmp/out-of-here", "..", ".", "", "a/b", "a\0b", "x" * 300])
def test_names_of_experiments_lead_nowhere(results: Path, name: str) -> None:
    top = results.parent
    for cell in cells_of(results)[1:]:
        edited(cell / "cell.json", lambda content: content.update(experiment=name))
    before = everything_in(top)
    figures, out = top / "figures", top / "out"
    done = bwbench("plot", results, "--figure", "step-time", "--format", "png", "--out", figures, "--folders")
    assert done.exit_code in (0, 2)
    assert "is no name that a folder may have" in done.err
    bwbench("publish", results, "--to", out)
    bwbench("merge", results, "--into", out)
    assert all(Path(path).is_relative_to(figures) or Path(path).is_relative_to(out)
               for path in everything_in(top) - before)  # fmt: skip
    assert not Path("/tmp/out-of-here").exists()


def test_names_in_a_published_file_lead_nowhere(results: Path) -> None:
    bwbench("publish", results)
    file = results / "published" / "study" / packed.PACKED
    first, *lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    head = json.loads(first)
    head["cells"][0] = "../../../out-of-here"
    file.write_bytes(gzip.compress("\n".join([json.dumps(head), *lines]).encode()))
    done = bwbench("merge", results, "--published", "--into", results.parent / "in")
    assert done.exit_code == 2
    assert "cells" in done.err


def test_nothing_is_published_through_a_link_out_of_the_results(results: Path) -> None:
    (results.parent / "elsewhere").mkdir()
    (results / "published").symlink_to(results.parent / "elsewhere")
    done = bwbench("publish", results)
    assert done.exit_code == 2 and "is a link out of" in done.err and "--to" in done.err
    assert not list((results.parent / "elsewhere").iterdir())


@pytest.mark.parametrize("link", ["figures", "figures/study", "figures/step-time.json"])
def test_plot_does_not_write_through_links_that_lie_there(results: Path, link: str) -> None:
    top, study = results.parent, results / "study"
    (top / "elsewhere").mkdir()
    (study / link).parent.mkdir(exist_ok=True)
    (study / link).symlink_to(top / ("secret" if link.endswith("json") else "elsewhere"))
    done = bwbench("plot", study, "--figure", "step-time", "--format", "png", "--folders")
    assert done.exit_code in ((0,) if link.endswith("json") else (1, 2)), done.err
    assert not list((top / "elsewhere").iterdir())
    assert (top / "secret").read_text() == f"{SECRET}\n"


@pytest.mark.parametrize("store", [".store", "../store"])
def test_merge_follows_links_inside_what_is_merged_and_refuses_the_others(results: Path, store: str) -> None:
    files = [file for cell in cells_of(results) for file in sorted(cell.rglob("*")) if file.is_file()]
    (results / store).mkdir()
    for number, file in enumerate(files):
        place = file.rename(results / store / str(number))
        file.symlink_to(os.path.relpath(place, file.parent))
    into = results.parent / "in"
    done = bwbench("merge", results, "--into", into, "--json")
    outcomes = {cell["outcome"] for cell in json.loads(done.out)["cells"]}
    copied = [path for path in into.rglob("*") if path.is_file() and path.name != ".merge.lock"]
    if store == ".store":
        assert (done.exit_code, outcomes, len(copied)) == (0, {"copied"}, len(files))
        assert not any(path.is_symlink() for path in copied)
    else:
        assert (done.exit_code, outcomes, copied) == (1, {"refused"}, [])
        assert "is a link" in done.err


def test_merge_refuses_links_that_lead_nowhere_or_to_folders(results: Path) -> None:
    first, second, *_ = cells_of(results)
    swapped(first / "attempt-1" / "rank0.jsonl", lambda file: file.symlink_to("nowhere"))
    (second / "attempt-0").symlink_to("attempt-1")
    done = bwbench("merge", results, "--into", results.parent / "in")
    assert done.exit_code == 1
    refused = [line for line in done.err.splitlines() if line.startswith("refused")]
    assert len(refused) == 2
    assert "rank0.jsonl" in refused[0] + refused[1]
    assert len(list((results.parent / "in").glob("study/*/cell.json"))) == 2


def test_nothing_in_records_commands_the_terminal(results: Path) -> None:
    for number, cell in enumerate(cells_of(results)):
        (cell / "attempt-1" / "rank0.log").write_text(f"log {ESCAPES}\n")
        edited(cell / "cell.json", lambda content: content.update(arm=f"{content['arm']}{ESCAPES}"))
        state = ("failed", "done")[number % 2]
        edited(cell / "status.json", lambda content, state=state: content.update(status=state, reason=f"bad {ESCAPES}"))
        configured(cell, lambda config: config["model"].update(name=f"m{ESCAPES}"))
    odd = results / "study" / f"odd{ESCAPES}-0123456789"
    odd.mkdir()
    (odd / "cell.json").write_text("{")
    slug = results / "study" / "slug-0123456789"
    slug.mkdir()
    (slug / "cell.json").write_text(json.dumps({"slug": ESCAPES, "experiment": ESCAPES, "arm": 3, ESCAPES: 1}))
    top, study = results.parent, results / "study"
    for command in [
        ("status", study), ("status", results, "--json"), ("status", results, "--spent"),
        ("show", cells_of(results)[0]), ("show", odd), ("show", f"x{ESCAPES}", "--results", results),
        ("compare", study, "--baseline", f"x{ESCAPES}"), ("compare", study, "--baseline", f"ddp{ESCAPES}"),
        ("export", study, "--to", "csv"), ("publish", results, "--to", top / "out"), ("list", f"x{ESCAPES}"),
        ("merge", results, "--into", top / "in"), ("plan", top / f"x{ESCAPES}.yaml"), ("status", top / ESCAPES),
        ("report", study, "--format", "markdown", "--out", top / "report.md"),
    ]:  # fmt: skip
        done = bwbench(*command)
        assert not COMMANDS_TERMINAL & set(done.out + done.err), command
    table = bwbench("status", study).out.splitlines()
    assert len({line.index("bad ␛") for line in table if "bad ␛" in line}) == 1, "columns stay straight"
    assert not COMMANDS_TERMINAL & set((top / "report.md").read_text())


def test_no_cell_of_a_csv_table_is_a_formula(results: Path) -> None:
    for cell in cells_of(results):
        edited(cell / "cell.json", lambda content: content.update(arm="=1+1", slug="@x"))
        configured(cell, lambda config: config.update({"=k": "+1", "t": "\t=1", "m": "-a"}))
    for what in ("cells", "evaluations", "steps"):
        text = bwbench("export", results, "--to", "csv", "--what", what).out
        rows = list(csv.reader(io.StringIO(text)))
        odd = [text for row in rows for text in row if text.lstrip()[:1] in tuple("=@+-") and not _is_number(text)]
        assert not odd
        assert "'=1+1" in {text for row in rows for text in row}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", [r"$\input{x}$", r"$\frac{$", "a$b", "$$", "\\", "{x_y}^%"])
def test_a_name_is_no_formula_and_no_command_of_latex(results: Path, name: str) -> None:
    for cell in cells_of(results):
        edited(cell / "cell.json", lambda content: content.update(arm=f"{content['arm']}{name}"))
        configured(cell, lambda config: config["model"].update(name=name))
    top = results.parent
    for figure in ("time-to-accuracy", "accuracy-over-time"):
        done = bwbench("plot", results, "--figure", figure, "--format", "png", "--out", top / "figures")
        assert done.exit_code == 0, done.err
    assert bwbench("report", results, "--format", "latex", "--out", top / "report.tex").exit_code == 0
    text = (top / "report.tex").read_text()
    assert "\\input{x}" not in text
    assert "\\frac{" not in text


def test_files_and_output_are_utf_8_whatever_the_locale(results: Path) -> None:
    cell = cells_of(results)[0]
    edited(cell / "status.json", lambda content: content.update(status="failed", reason="größer → kleiner"))
    (cell / "attempt-1" / "rank0.log").write_text("größer", encoding="utf-8")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "bwbench.cli.main", "show", str(cell)]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().count("größer") == 2


def test_no_text_file_is_opened_in_the_encoding_of_the_locale() -> None:
    found = []
    for file in PACKAGE.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(call, ast.Call)
                and _opens_text(call)
                and "encoding" not in {key.arg for key in call.keywords}
            ):
                found.append(f"{file.relative_to(PACKAGE)}:{call.lineno}: {ast.unparse(call)}")
    assert not [line for line in found if "/proc/" not in line and "_QDISC" not in line and "devnull" not in line]


def _opens_text(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("read_text", "write_text"):
        return True
    if name != "open" or ast.unparse(call.func) in ("os.open", "gzip.open", "tarfile.open", "StateFolder.open"):
        return False
    words = [part.value for arg in call.args for part in ast.walk(arg) if isinstance(part, ast.Constant)]
    return not any(re.fullmatch("[rwxa]\\+?b\\+?", str(word)) for word in words) and "opener" not in ast.unparse(
        call.func
    )
