"""A composed sweep over real (emulated) links: which runs are made, and how the results are marked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.program import TINY, run

pytestmark = [pytest.mark.netns, pytest.mark.timeout(500)]  # a dozen runs on a machine that may be busy

COMPOSED = (
    TINY.replace("target: {accuracy: 0.99}", "target: {accuracy: 0.8}").replace("samples: 1280", "samples: 6400")
    + "mode: composed\nwhole: {share: 0, at_least: 1}\ntiming: {runs: 2}\n"
    + "matrix:\n  link.bandwidth: [20 Mbit/s, 100 Mbit/s]\n"
    + "  algorithm: [ring, single]\n"
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("composed")
    (folder / "tiny.yaml").write_text(COMPOSED)
    result = run("run", "tiny.yaml", cwd=folder, timeout_s=450.0)
    assert result.returncode == 0, result.stderr
    assert "‡†" in result.stdout and "note: † Composed of" in result.stderr
    assert "1 ran whole as well" in result.stderr
    return folder


def cells(folder: Path) -> list[dict]:
    listed = run("status", "results", "--json", cwd=folder)
    return list(json.loads(listed.stdout)["cells"])


def test_one_node_alone_runs_whole_and_of_the_links_one_is_composed(finished: Path) -> None:
    found = cells(finished)
    assert {cell["status"] for cell in found} == {"done"}
    assert sorted((cell["arm"], cell["composed"]) for cell in found) == [
        ("ring", False),
        ("ring", True),
        ("single", False),
    ]
    (checked,) = (cell for cell in found if cell["composed_error"] is not None)
    assert checked["composed_error"] > -1  # of runs this short on a machine that may be busy, no more can be asked


def test_runs_are_shared(finished: Path) -> None:
    convergence = list((finished / "results" / ".convergence").iterdir())
    timing = list((finished / "results" / "tiny" / ".timing").iterdir())
    assert len(convergence) == 1 and len(timing) == 2 * 2
    assert all(
        json.loads((folder / "status.json").read_text())["status"] == "done" for folder in (*convergence, *timing)
    )


def test_the_same_command_again_runs_nothing_and_another_experiment_shares_convergence(finished: Path) -> None:
    again = json.loads(run("plan", "tiny.yaml", "--json", cwd=finished).stdout)
    assert not any(cell["runs"] for cell in again["cells"]) and again["predicted_s"] == 0
    assert [cell["predicted_s"] for cell in again["cells"] if cell["way"] == "composed"] == [None]
    (finished / "other.yaml").write_text(COMPOSED.replace("name: tiny", "name: other"))
    result = run(
        "run",
        "other.yaml",
        "--set",
        "link.bandwidth=50 Mbit/s",
        "--set",
        "whole.at_least=0",
        "--set",
        "timing.runs=1",
        cwd=finished,
        timeout_s=450.0,
    )
    assert result.returncode == 0, result.stderr
    assert len(list((finished / "results" / ".convergence").iterdir())) == 1


def test_composed_cells_are_missing_in_full_mode(finished: Path) -> None:
    planned = json.loads(run("plan", "tiny.yaml", "--mode", "full", "--json", cwd=finished).stdout)["cells"]
    assert sorted((cell["arm"], cell["runs"]) for cell in planned) == [
        ("ring", False),
        ("ring", True),
        ("single", False),
    ]


def test_show_and_figures_say_what_is_composed(finished: Path) -> None:
    (slug,) = (cell["slug"] for cell in cells(finished) if cell["composed"] and cell["experiment"] == "tiny")
    shown = run("show", slug, cwd=finished)
    assert "convergence run" in shown.stdout and "evaluations" in shown.stdout
    plotted = run("plot", "results/tiny", "--all", cwd=finished)
    assert plotted.returncode == 0, plotted.stderr
    tables = [json.loads(path.read_text()) for path in (finished / "results").glob("**/figures/*.json")]
    assert tables and all("Composed" in " ".join(table["notes"]) for table in tables)


def test_programs_are_told_what_is_composed_and_how_far_it_is_off(finished: Path) -> None:
    listed = json.loads(run("status", "results/tiny", "--json", cwd=finished).stdout)
    assert "1 of 3 cells; 1 ran whole as well" in " ".join(listed["notes"])

    result = run("compare", "results/tiny", "--baseline", "single", "--json", cwd=finished)
    assert result.returncode == 0, result.stderr
    compared = json.loads(result.stdout)
    rows = {row["group"]["link.bandwidth"]: row for row in compared["rows"]}
    assert set(rows) == {"20 Mbit/s", "100 Mbit/s"}
    assert sorted(row["composed"] for row in rows.values()) == [False, True]
    for row in rows.values():
        assert (row["algorithm"], row["n"], row["num_censored"]) == ("ring", 1, 0)
        assert row["ratio"] == pytest.approx(row["baseline_time_s"] / row["time_s"])
    (crossing,) = compared["crossovers"]
    assert crossing["composed"] and crossing["gradient_bytes"] > 0 and crossing["compute_s"] > 0
    assert [row["composed"] for row in compared["pareto"]].count(True) == 1
    assert "1 of 3 cells; 1 ran whole as well" in " ".join(compared["notes"])


def test_composed_cells_are_exported_with_their_curves(finished: Path) -> None:
    def exported(what: str) -> list[dict]:
        result = run("export", "results/tiny", "--to", "json", "--what", what, cwd=finished)
        assert result.returncode == 0, result.stderr
        return list(json.loads(result.stdout)["rows"])

    found = exported("cells")
    assert sorted((row["arm"], row["composed"]) for row in found) == [
        ("ring", False),
        ("ring", True),
        ("single", False),
    ]
    (composed,) = (row for row in found if row["composed"])
    assert composed["link_verdict"] == "ok" and composed["commit"] and composed["wire_bytes"] > 0
    (file,) = (finished / "results" / "tiny").glob(f"*-{composed['id']}/composed.json")
    assert json.loads(file.read_text())["gradient_bytes"] == 2600  # in case all cells of an arm are composed
    curve = [row for row in exported("evaluations") if row["id"] == composed["id"]]
    (arrived,) = (row for row in curve if row["target_met"])
    assert arrived["clock_s"] == composed["time_to_target_s"] and arrived["accuracy"] == composed["final_metric"]
    assert composed["id"] not in {row["id"] for row in exported("steps")}


def test_what_depends_on_the_link_is_refused(finished: Path) -> None:
    refused = run("run", "tiny.yaml", "--set", "algorithm=async", cwd=finished)
    assert refused.returncode == 2
    assert "tiny.yaml" in refused.stderr and "depends on the link" in refused.stderr
