import pytest
from fixtures_records import Study, write_study

from bwbench.records import CellFolder, iter_cells, read_json, write_json_atomic
from bwbench.results.analysis.caveats import composed_errors, composed_note
from bwbench.results.analysis.cells import is_composed
from bwbench.results.analysis.results import load_results


def compose(folder, factor: float, whole: bool) -> float:
    """Give a cell a composed result that is ``factor`` times its whole one; returns the time to target."""
    status = read_json(folder / "status.json")
    events = CellFolder(folder)
    from bwbench.results.analysis.trial import curve_of

    time_s = factor * status["time_to_target_s"]
    curve = [{**point.to_json(), "clock_s": factor * point.clock_s} for point in curve_of(events.events())]
    content = {
        "id": folder.name,
        "convergence": "a",
        "timing": "b",
        "time_to_target_s": time_s,
        "censored_at_s": None,
        "training_clock_s": time_s,
        "curve": curve,
    }
    content |= {"interval_s": [0.95 * time_s, 1.05 * time_s], "ledger": None, "environment": None, "link": None}
    write_json_atomic(folder / "composed.json", content)
    if not whole:
        about = {"convergence": "a", "timing": "b", "interval_s": content["interval_s"], "timed_steps": 24}
        write_json_atomic(folder / "status.json", {**status, "time_to_target_s": time_s, "composed": about})
    return time_s


@pytest.fixture
def study(tmp_path):
    return write_study(tmp_path, Study(arms=("ddp", "ring", "ring-fp16"), repeats=2)), tmp_path


def test_the_error_is_that_of_cells_made_both_ways(study) -> None:
    folders, root = study
    compose(folders[0], 1.02, whole=True)
    compose(folders[1], 0.9, whole=True)
    compose(folders[2], 3.0, whole=False)
    found = {error.id: error for error in composed_errors(iter_cells(root))}
    first, second = (found[CellFolder(folder).cell.id] for folder in folders[:2])
    assert len(found) == 2
    assert first.error == pytest.approx(0.02)
    assert first.inside
    assert second.error == pytest.approx(-0.1)
    assert not second.inside
    assert [is_composed(CellFolder(folder)) for folder in folders] == [False, False, True, False, False, False]


def test_it_is_known_which_whole_runs_other_programs_disturbed(study) -> None:
    folders, root = study
    for folder, cores in zip(folders, (0.04, 0.06, None), strict=False):
        compose(folder, 1.0, whole=True)
        file = CellFolder(folder).last_attempt / "environment.json"
        write_json_atomic(file, {**(read_json(file) or {}), "others": {"cores": cores}})
    assert sorted(error.disturbed for error in composed_errors(iter_cells(root))) == [False, False, True]


def test_one_way_censored_and_the_other_not_is_no_error_in_per_cent(study) -> None:
    folders, root = study
    compose(folders[0], 1.0, whole=True)
    content = read_json(folders[0] / "composed.json")
    write_json_atomic(folders[0] / "composed.json", content | {"time_to_target_s": None, "censored_at_s": 9.0})
    assert composed_errors(iter_cells(root)) == []


def test_where_the_limit_of_time_ended_both_ways_there_is_no_error(study) -> None:
    """They end at the limit, whatever composing was off by."""
    folders, root = study
    compose(folders[0], 1.0, whole=True)
    ended = {"time_to_target_s": None, "censored_at_s": 9.0, "reason": "time"}
    for name in ("composed.json", "status.json"):
        write_json_atomic(folders[0] / name, read_json(folders[0] / name) | ended)
    assert composed_errors(iter_cells(root)) == []
    write_json_atomic(folders[0] / "status.json", read_json(folders[0] / "status.json") | {"reason": "samples"})
    assert composed_errors(iter_cells(root)) == []
    write_json_atomic(folders[0] / "composed.json", read_json(folders[0] / "composed.json") | {"reason": "samples"})
    assert [error.error for error in composed_errors(iter_cells(root))] == [0.0]


def test_what_is_said_of_composed_cells() -> None:
    assert composed_note(0, 12, []) is None
    assert "not known" in composed_note(3, 12, [])
    note = composed_note(10, 12, [0.02, -0.06, 0.01])
    assert "10 of 12" in note
    assert note.endswith("2.0 % (median), 6.0 % at most.")
    assert composed_note(10, 12, [0.02, -0.06, 0.01], 2).endswith("during 2 of these runs.")


def test_tables_and_figures_show_the_composed_times_and_say_so(study) -> None:
    folders, root = study
    times = [compose(folder, 2.0, whole=False) for folder in folders if "ring-cnn" in folder.name]
    (results,) = load_results(root)
    ring = results.times[results.times["arm"] == "ring"].iloc[0]
    assert ring["num_composed"] == 2
    assert min(times) <= ring["time_s"] <= max(times)
    assert (results.times[results.times["arm"] != "ring"]["num_composed"] == 0).all()
    curves = results.curves[results.curves["arm"] == "ring"]
    assert curves[curves["target_met"]]["clock_s"].min() == pytest.approx(min(times))
    assert any("2 of 6 cells" in note for note in results.notes)
