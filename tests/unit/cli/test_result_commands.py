"""status, show and plot on result folders."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from fixtures_commands import bwbench
from fixtures_records import Study, cell_of, write_study

from bwbench.base.errors import EXIT_USER_INPUT, ConfigError
from bwbench.cli.options import find_cell
from bwbench.cli.result_commands import PictureFormat, Width, plot, publish, show, status

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


def test_show_says_of_a_link_what_one_looks_for(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = results.glob("wifi/ring-cnn-10mbps-r0-*/attempt-1/link.json")
    applied = {"up_bps": 1e7, "down_bps": 1e7, "bandwidth_bps": 1e7, "latency_s": 0.0025, "loss": 0.01, "mtu": 1500,
               "queue_bytes": 64000, "tcp": {"tcp_congestion_control": "cubic", "tcp_rmem": "4096 131072"},
               "air": {"longest_s": 0.005484}, "nodes": {"3": {"loss": 0.1}}, "priority": "real-time"}  # fmt: skip
    emulator = {"backend": "relay", "alive": True, "lateness_p50_s": 2e-5, "lateness_p99_s": 6e-5, "drops": 455,
                "lateness_max_s": 0.016, "lateness_histogram": [[2e-5, 11113]], "overruns": 1, "unsent": 2,
                "training": {"frames": 10, "p50_s": 3e-5, "p99_s": 7e-5, "max_s": 0.001}}  # fmt: skip
    file.write_text(json.dumps({**json.loads(file.read_text()), "applied": applied, "emulator": emulator}))
    assert show("ring-cnn-10mbps-r0", results) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "asked     10 Mbit/s, RTT 5 ms, shared air, queue 1 bdp" in lines
    assert "link         bandwidth 10 Mbit/s, latency 2.5 ms, medium shared" in lines
    how = "10 Mbit/s, 2.5 ms one way, loss 1 %, queue 64 kB, node(s) 3 differ, MTU 1500, TCP cubic"
    assert f"applied   {how}" in lines
    late = "frames left 30 us late (median), 99 % within 70 us, 1 ms at most"
    assert f"emulator  {late}, 455 dropped by the link, 3 lost by this machine" in lines
    assert not any(word in line for line in lines for word in ("histogram", "tcp_rmem", "longest_s"))


def test_show_has_the_log_of_the_rank_that_failed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show("threshold-cnn-10mbps-r1", results)
    text = capsys.readouterr().out
    assert "failed" in text and "last lines of rank2.log" in text and "Traceback" in text
    assert "rank1.log" not in text and text.count("last lines of rank2.log") == 1


def test_show_says_which_ranks_send_by_which_interface(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = next(path for path in (results / "wifi").iterdir() if path.name.startswith("ring-cnn-10mbps-r0"))
    hosts = [{"address": f"10.0.0.{host}", "interface": "eth0"} for host in (1, 1, 2)]
    file = cell / "attempt-1" / "environment.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "hosts": hosts}))
    show("ring-cnn-10mbps-r0", results)
    text = capsys.readouterr().out
    assert "sends by  eth0 at 10.0.0.1 (ranks 0, 1); eth0 at 10.0.0.2 (rank 2)" in text
    assert "ranks of one host say to one another leaves by no interface" in text


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
    for name in ("ring-cnn-10mbps-r0", cell_id):
        assert find_cell(str(folder.parent / name), results / "nowhere") == folder, "a slug in its folder needs no id"
    with pytest.raises(ConfigError, match=r"no cell 'ring-cnn-10mbps-r9' below .*wifi"):
        find_cell(str(folder.parent / "ring-cnn-10mbps-r9"), results)


@pytest.mark.parametrize(
    ("name", "words"), [("nothing", "no cell 'nothing'"), ("single-cnn", "means 2 cells"), ("", "means 6 cells")]
)
def test_a_cell_that_is_not_one(results: Path, name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find_cell(name, results)


def test_plot_prints_the_files_and_says_what_it_did_not_draw(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = ["time-to-accuracy", "bandwidth"]
    assert plot(results / "wifi", figure=figures, width=Width.column, verbose=True) == 0
    captured = capsys.readouterr()
    paths = [Path(line) for line in captured.out.splitlines()]
    assert [path.suffix for path in paths] == [".png", ".pdf", ".json"]
    assert all(path.is_file() and path.parent == results / "wifi" / "figures" for path in paths)
    assert "only one bandwidth" in captured.err and "1 failed" in captured.err
    plot(results / "wifi", figure=figures, format=[PictureFormat.png])
    assert "not drawn: bandwidth of wifi: only one bandwidth" in capsys.readouterr().err  # who names it is told


def test_plot_draws_first_what_answers(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(results, Study("office", arms=("ring", "single"), bandwidths_mbps=(1.0, 5.0, 20.0), repeats=1))
    plot(results / "office", format=[PictureFormat.png])
    captured = capsys.readouterr()
    drawn = [Path(line).name for line in captured.out.splitlines() if line.endswith(".png")]
    first = ["bandwidth.png", "best-algorithm.png"]
    assert drawn == [*first, "accuracy-over-time_5Mbps.png", "time-to-accuracy_5Mbps.png"]
    assert "not drawn" not in captured.err
    again = f"`bwbench plot {results / 'office'}"  # whoever draws otherwise, as the demo does, has none of its options
    for words in (f"{again} -v` says why", "do not apply", f"{again} --all` draws every figure at every setting"):
        assert words in captured.err
    assert "4 pictures of 4 cells" in captured.err
    plot(results / "office", format=[PictureFormat.png], at=["1Mbps"])
    said = capsys.readouterr()
    drawn = [Path(line).name for line in said.out.splitlines() if line.endswith(".png")]
    assert drawn == [*first, "accuracy-over-time_1Mbps.png", "time-to-accuracy_1Mbps.png"]
    assert "--all" not in said.err
    plot(results / "office", format=[PictureFormat.png], all_=True, verbose=True)
    said = capsys.readouterr()
    assert {"step-time_1Mbps.png", "step-time_20Mbps.png", "throughput.png"} <= {
        Path(line).name for line in said.out.splitlines()
    }
    assert "not drawn: nodes of office" in said.err


def test_status_of_several_experiments_has_a_line_for_each_published_set(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_study(results, Study("office", arms=("ring", "single"), repeats=2))
    publish(results)
    shutil.rmtree(results / "office")
    capsys.readouterr()
    status(results)
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1 + 6 and "published sets left out: office, wifi" in said.err
    status(results, published=True)
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert len(lines) == 1 + 6 + 1 + 2 and lines[-2].startswith("published")
    assert lines[-1].split()[:6] == ["office", "4", "2", "2", "4", "0"] and lines[-1].endswith("published/office")
    shutil.rmtree(results / "wifi")
    status(results)
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1 + 2 and "no runs of your own" in said.err
    status(results, json=True)
    assert len(json.loads(capsys.readouterr().out)["cells"]) == 4 + 5
    status(results / "office")
    assert len(capsys.readouterr().out.splitlines()) == 1 + 4


def test_what_is_published_here_fits_on_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    sets = Path(__file__).parents[3] / "results" / "published"
    status(sets)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == sorted(path.parent.name for path in sets.glob("*/cells.jsonl.gz"))
    assert len(lines) < 25


@pytest.mark.parametrize("command", ["status", "plot", "report", "compare", "export", "verify", "merge"])
def test_every_command_on_a_folder_says_what_it_leaves_out_and_takes_it_when_asked(results: Path, command: str) -> None:
    write_study(results, Study("office", arms=("ring", "single"), repeats=1))
    publish(results / "office")
    shutil.rmtree(results / "office")
    more = {
        "plot": ["--figure", "time-to-accuracy", "--format", "png"],
        "compare": ["--baseline", "single"],
        "export": ["--to", "csv"],
        "merge": ["--into", results.parent / "into"],
    }.get(command, [])
    line = "note: published sets left out: office; --published takes them"
    done = bwbench(command, results, *more)
    assert done.exit_code == 0 and done.err.count("published sets") == done.err.splitlines().count(line) == 1
    done = bwbench(command, results, "--published", *more)
    assert done.exit_code == 0 and "published sets" not in done.err
    done = bwbench(command, results / "office", *more)
    assert done.exit_code == 0 and done.err.count("no runs of your own, so the published set is taken") == 1


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


@pytest.mark.parametrize(("name", "instead"), [("viability", "'nodes'"), ("link", "`bwbench report FOLDER`")])
def test_a_figure_that_is_drawn_no_more_names_what_is_in_its_place(results: Path, name: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=f"figure '{name}' is no more. .*{instead}.* Known: "):
        plot(results, figure=[name])
