"""The published file of an experiment: what goes in comes out, and what is broken is said once and clearly."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from fixtures_records import Study, cell_of
from hypothesis import given
from hypothesis import strategies as st

from bwbench.base.errors import EXIT_USER_INPUT, PackedRecordsError
from bwbench.records import cell_at, iter_cells
from bwbench.records.packed import PACKED, columns_of, dump, points_of, read_packed, restored, share, write_packed

KEYS = st.sampled_from(["a", "link", "=", "columns"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=20,
)  # fmt: skip


@given(contents=st.lists(JSON, max_size=6), repeated=JSON)
def test_sharing_loses_nothing(contents: list[Any], repeated: Any) -> None:
    long = {"text": "x" * 200, "with": repeated}
    contents = [*contents, long, {"inside": [long]}, {"=": 0}, [{"=": "y" * 200}]]
    parts, shared = share(contents)
    assert [restored(dump(content), parts) for content in shared] == contents


def test_what_many_cells_have_in_common_stands_once() -> None:
    link = {"measured": list(range(100))}
    parts, shared = share([{"id": number, "link": link} for number in range(50)])
    assert parts == [link]
    assert len(dump(shared)) < 50 * 40


@given(points=st.lists(st.fixed_dictionaries({"step": st.integers(), "loss": st.none() | st.floats(0, 1)})))
def test_curves_go_by_columns(points: list[dict[str, Any]]) -> None:
    assert points_of(columns_of(points)) == points


def test_points_that_differ_in_their_metrics_stay_as_they_are() -> None:
    points = [{"step": 0}, {"step": 1, "loss": 0.5}]
    assert points_of(columns_of(points)) == points


def content(cell_id: str, status: str = "done") -> dict[str, Any]:
    cell = {"schema": 1, "id": cell_id, "slug": "ring", "experiment": "study", "arm": "ring", "config": {"nodes": 1}}
    return {
        "cell.json": cell,
        "status.json": {"id": cell_id, "slug": "ring", "status": status, "attempt": 1},
        "attempts": 1,
    }


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    write_packed(tmp_path / "study", "study", {"ring-b": content("b"), "ring-a": content("a")}, [])
    return tmp_path / "study"


def test_cells_come_out_by_name_and_are_found_by_id(experiment: Path) -> None:
    assert [cell.path.name for cell in iter_cells(experiment)] == ["ring-a", "ring-b"]
    assert [cell.path.name for cell in iter_cells(experiment.parent)] == ["ring-a", "ring-b"]
    found = cell_at(experiment / "another-slug-b")
    assert found.is_packed
    assert found.path.name == "ring-b"
    assert found.attempts == [] and found.events() == {} and found.num_attempts == 1
    assert [cell.path.name for cell in iter_cells(experiment / "ring-b")] == ["ring-b"]


def test_the_same_cells_give_the_same_bytes(experiment: Path, tmp_path: Path) -> None:
    again = write_packed(tmp_path / "again", "study", {"ring-a": content("a"), "ring-b": content("b")}, [])
    assert again.read_bytes() == (experiment / PACKED).read_bytes()


def test_a_folder_with_a_result_stands_before_the_published_cell(experiment: Path) -> None:
    folder = experiment / "ring-a"
    folder.mkdir()
    (folder / "cell.json").write_text(json.dumps({**cell_of(Study(), "ring", 10.0, 0), "arm": "mine"}))
    assert [cell.is_packed for cell in iter_cells(experiment)] == [True, True]  # planned, nothing to show yet
    (folder / "status.json").write_text(json.dumps({"id": "a", "slug": "ring", "status": "failed"}))
    assert [cell.is_packed for cell in iter_cells(experiment)] == [False, True]
    assert cell_at(folder).cell.arm == "mine"


def test_a_changed_file_is_read_anew(experiment: Path) -> None:
    assert len(list(iter_cells(experiment))) == 2
    write_packed(experiment, "study", {"ring-c": content("c")}, [])
    assert [cell.path.name for cell in iter_cells(experiment)] == ["ring-c"]


def lines_of(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def truncated(path: Path) -> bytes:
    return path.read_bytes()[:-20]


def no_gzip(path: Path) -> bytes:
    return b"<html>not found</html>"


def empty(path: Path) -> bytes:
    return b""


def no_json(path: Path) -> bytes:
    return gzip.compress(b"{nonsense\n")


def a_line_less(path: Path) -> bytes:
    return gzip.compress("\n".join(lines_of(path)[:-1]).encode())


def a_broken_line(path: Path) -> bytes:
    return gzip.compress("\n".join([*lines_of(path)[:-1], "{nonsense"]).encode())


def a_part_that_is_not_there(path: Path) -> bytes:
    return gzip.compress("\n".join([*lines_of(path)[:-1], '{"cell.json":{"=":99}}']).encode())


def newer(path: Path) -> bytes:
    first, *rest = lines_of(path)
    return gzip.compress("\n".join([json.dumps({**json.loads(first), "schema": 99}), *rest]).encode())


@pytest.mark.parametrize(
    "broken", [truncated, no_gzip, empty, no_json, a_line_less, a_broken_line, a_part_that_is_not_there, newer]
)
def test_a_broken_file_is_one_clear_error(experiment: Path, broken: Any) -> None:
    path = experiment / PACKED
    path.write_bytes(broken(path))
    with pytest.raises(PackedRecordsError) as caught:
        for cell in iter_cells(experiment):
            assert cell.status is not None
    assert str(path) in str(caught.value)
    assert "newer" in str(caught.value) if broken is newer else "anew" in str(caught.value)
    assert caught.value.exit_code == EXIT_USER_INPUT


def test_no_file_is_no_published_cell(tmp_path: Path) -> None:
    assert read_packed(tmp_path) is None
    assert not cell_at(tmp_path / "x-1").is_packed
