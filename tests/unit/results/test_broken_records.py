"""Whatever becomes of one cell's records, nothing else suffers: the others are listed, drawn and exported as before."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures_composed import compose
from fixtures_records import Study, write_study

from bwbench.base.errors import RecordError
from bwbench.cli.cell_table import status_entry
from bwbench.records import iter_cells
from bwbench.records.merge import merge
from bwbench.results.analysis.cells import cell_row
from bwbench.results.analysis.export import WHAT
from bwbench.results.analysis.host_bound import OwnSteps
from bwbench.results.analysis.results import Reader, read_cells, results_of
from bwbench.results.analysis.spent import spent
from bwbench.results.page.payload import build_payload
from bwbench.results.publish import publish

MUTATIONS = 40
JUNK = [
    None,
    True,
    -1,
    0,
    10**400,
    1e308,
    "",
    "x",
    "10 Mbit/s",
    [],
    [[]],
    {},
    {"name": 3},
    [None, "a"],
    {"a": {"b": []}},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(text: str, rng: random.Random) -> bytes:
    """A document with one thing wrong: a value, a key, a byte, or its end."""
    how = rng.choice(["value", "value", "value", "key", "byte", "end"])
    if how == "byte":
        content = bytearray(text.encode())
        content[rng.randrange(len(content))] = rng.randrange(256)
        return bytes(content)
    if how == "end":
        return text.encode()[: rng.randrange(len(text))]
    whole = json.loads(text)
    path = rng.choice(list(places(whole)))
    inside = whole
    for key in path[:-1]:
        inside = inside[key]
    if how == "key":
        del inside[path[-1]]
    else:
        inside[path[-1]] = rng.choice(JUNK)
    return json.dumps(whole).encode()


def broken(file: Path, rng: random.Random) -> None:
    text = file.read_text()
    if file.suffix != ".jsonl":
        file.write_bytes(changed(text, rng))
        return
    lines = text.splitlines()
    number = rng.randrange(len(lines))
    begin, end = "\n".join(lines[:number]), "\n".join(lines[number + 1 :])
    file.write_bytes(begin.encode() + b"\n" + changed(lines[number], rng) + b"\n" + end.encode() + b"\n")


def looked_at(root: Path) -> dict[str, dict[str, Any]]:
    """What the commands say of every cell, by its folder."""
    found: dict[str, dict[str, Any]] = {}
    for cell in iter_cells(root):
        entry = status_entry(cell, OwnSteps.of([]))
        found.setdefault(cell.path.name, {})["status"] = entry
    reader = Reader()
    cells, refused = read_cells(iter_cells(root), reader)
    assert len(cells) + len(refused) == len(found)
    for results in results_of(cells, reader):
        _ = results.cells, results.curves, results.times, results.ledger, results.notes
    if cells:
        build_payload(cells, "study", reader)
    for cell in cells:
        found[cell.path.name] |= {"row": cell_row(cell), "reading": reader.read(cell)}
        for what in ("cells", "evaluations", "steps"):
            found[cell.path.name][what] = str(list(WHAT[what]([cell])))
    spent(iter_cells(root))
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [3, *(pytest.param(more, marks=pytest.mark.thorough) for more in (4, 5, 6))])
def test_one_broken_cell_hides_no_other_and_breaks_nothing(tmp_path: Path, seed: int) -> None:
    study = Study("study", arms=("ddp", "ring", "single"), repeats=2, samples_scale=1000.0)
    folders = write_study(tmp_path / "whole", study)
    compose(next(folder for folder in folders if folder.name.startswith("ring") and "r0" in folder.name))
    before = looked_at(tmp_path / "whole")
    rng, refused = random.Random(seed), 0
    for number in range(MUTATIONS):
        root = tmp_path / "broken"
        shutil.copytree(tmp_path / "whole", root)
        victim = root / "study" / rng.choice(folders).name
        names = ("*.json", "attempt-1/*.json", "attempt-1/rank0.jsonl")
        file = rng.choice([file for name in names for file in sorted(victim.glob(name))])
        broken(file, rng)
        try:
            after = looked_at(root)
            if number % 15 == 0:
                list(publish(root, tmp_path / "published"))
                list(merge([root], tmp_path / f"merged-{number}"))
        except RecordError as error:
            raise AssertionError(f"mutation {number} of {file.name} ends a command: {error}") from error
        except Exception as error:
            raise AssertionError(f"mutation {number} of {file.name}: {file.read_bytes()[:3000]!r}") from error
        refused += after[victim.name]["status"]["status"] == "unreadable"
        for name, seen in before.items():
            if name != victim.name:
                there = {
                    key: str(value).replace(str(root), str(tmp_path / "whole")) for key, value in after[name].items()
                }
                assert there == {key: str(value) for key, value in seen.items()}, f"mutation {number} of {file.name}"
        shutil.rmtree(root)
    assert refused > MUTATIONS / 4, "most changes are no records any more"
