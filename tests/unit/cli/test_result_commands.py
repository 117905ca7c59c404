"""status, show and plot on result folders."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from fixtures_records import Study, cell_of, write_study

from bwbench.base.errors import EXIT_USER_INPUT, ConfigError
from bwbench.cli.options import find_cell
from bwbench.cli.result_commands import Width, plot, show, status

STUDY = Study(
    "wifi", arms=("ring", "threshold", "single"), repeats=2, limit_s=3.0,
    statuses={("threshold", 1): ("failed", "rank 2 was killed by SIGKILL\nlast lines of rank2.log:\nboom"),
              ("ring", 1): ("missing", "")},
)  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_study(tmp_path / "results", STUDY)
    return tmp_path / "results"


def test_status_lists_every_cell(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(results) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) == 1 + 6
    assert any("failed" in line and "rank 2 was killed by SIGKILL" in line for line in lines)
    assert sum("missing" in line for line in lines) == 1
    assert any("> 3" in line for line in lines)  # censored
    assert "6 cells" in captured.err


def test_status_as_json_has_what_the_contract_says(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status(results / "wifi", json=True)
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert len(cells) == 6
    for cell in cells:
        assert {"id", "slug", "status", "reason", "time_to_target_s", "final_metric", "config"} <= cell.keys()
        assert cell["config"]["model"] == {"name": "cnn"}
    failed = next(cell for cell in cells if cell["status"] == "failed")
    assert "boom" in failed["reason"]  # in full, unlike in the table


def test_one_broken_cell_does_not_hide_the_others(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = next((results / "wifi").glob("single-*"))
    (broken / "cell.json").write_text("{")
    assert status(results) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 6 and sum("unreadable" in line for line in lines) == 1
    status(results, json=True)
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [cell["id"] for cell in cells if cell["status"] == "unreadable"] == [broken.name.rpartition("-")[2]]


def test_status_of_thousands_of_cells_takes_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = cell_of(STUDY, "ring", 10.0, 0)
    for number in range(2000):
        folder = tmp_path / "many" / f"ring-{number:010x}"
        folder.mkdir(parents=True)
        (folder / "cell.json").write_text(json.dumps({**content, "id": f"{number:010x}", "slug": "ring"}))
        (folder / "status.json").write_text(json.dumps({"status": "done", "metric": "accuracy", "final_metric": 0.9}))
    started = time.process_time()
    status(tmp_path)
    assert time.process_time() - started < 2.0  # 0.2 s on an idle core
    assert len(capsys.readouterr().out.splitlines()) == 2001


def test_show_says_everything_of_a_cell(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show("ring-cnn-10mbps-r0", results) == 0
    text = capsys.readouterr().out
    expected = "time to target|10 Mbit/s|relay|asked RTT|waiting for the link|payload|wire|host|validation|640"
    for words in expected.split("|"):
        assert words in text, words
    assert "last lines" not in text


def test_show_has_the_log_of_the_rank_that_failed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show("threshold-cnn-10mbps-r1", results)
    text = capsys.readouterr().out
    assert "failed" in text and "last lines of rank2.log" in text and "Traceback" in text
    assert "rank1.log" not in text and text.count("last lines of rank2.log") == 1


def test_show_of_a_cell_that_has_not_run(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show("ring-cnn-10mbps-r1", results)
    assert "missing" in capsys.readouterr().out


def test_show_as_json(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show("single-cnn-unshaped-r0", results, json=True)
    record = json.loads(capsys.readouterr().out)
    assert record["cell"]["arm"] == "single" and record["state"] == "done"
    assert record["ledger"]["num_ranks"] == 1 and record["evaluations"] and record["link"] and record["environment"]


def test_a_cell_is_found_by_path_id_and_slug(results: Path) -> None:
    folder = next(path for path in (results / "wifi").iterdir() if path.name.startswith("ring-cnn-10mbps-r0"))
    cell_id = folder.name.rpartition("-")[2]
    for name in (str(folder), str(folder / "cell.json"), cell_id, cell_id[:7], folder.name, "ring-cnn-10mbps-r0"):
        assert find_cell(name, results) == folder
    assert find_cell(str(folder), results / "nowhere") == folder


@pytest.mark.parametrize(
    ("name", "words"), [("nothing", "no cell 'nothing'"), ("single-cnn", "means 2 cells"), ("", "means 6 cells")]
)
def test_a_cell_that_is_not_one(results: Path, name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find_cell(name, results)


def test_plot_prints_the_files_and_says_what_it_did_not_draw(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plot(results / "wifi", figure=["time-to-accuracy", "bandwidth"], width=Width.column) == 0
    captured = capsys.readouterr()
    paths = [Path(line) for line in captured.out.splitlines()]
    assert [path.suffix for path in paths] == [".png", ".pdf", ".json"]
    assert all(path.is_file() and path.parent == results / "wifi" / "figures" for path in paths)
    assert "only one bandwidth" in captured.err and "1 failed" in captured.err


def test_figures_in_a_result_folder_are_no_cells(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot(results, figure=["step-time"])
    capsys.readouterr()
    status(results)
    assert len(capsys.readouterr().out.splitlines()) == 1 + 6


@pytest.mark.parametrize("command", [status, lambda folder: plot(folder)])
def test_a_folder_without_records_is_the_users_mistake(tmp_path: Path, command: object) -> None:
    (tmp_path / "empty here").mkdir()
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "empty here", tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(ConfigError) as caught:
            command(folder)  # type: ignore[operator]
        assert caught.value.exit_code == EXIT_USER_INPUT
        assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_nothing_to_draw_says_why(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring",), repeats=1, limit_s=0.5, statuses={("ring", 0): ("failed", "x")}))
    with pytest.raises(ConfigError, match=r"nothing to draw(.|\n)*no cell is done"):
        plot(tmp_path)


def test_an_unknown_figure_is_refused_with_the_nearest_name(results: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'step-time'"):
        plot(results, figure=["steptime"])
