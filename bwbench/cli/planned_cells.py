"""What a sweep would do, cell by cell: why each one runs, bytes a step, how long it should take."""

from __future__ import annotations

from collections.abc import Sequence

from bwbench.base.errors import LaunchError
from bwbench.base.units import DURATION
from bwbench.cli.needed_here import data_problems, device_problems
from bwbench.cli.output import MAX_ROWS, MUCH_LESS, new_table, print_json_rows, seconds, size, stderr, stdout
from bwbench.experiment.config.real_size import memory_of, memory_words
from bwbench.experiment.plan import Forecast, PlannedCell, doubts, foresee
from bwbench.experiment.plan.calibration import Stopping
from bwbench.experiment.plan.carried import HostLoad, not_carried
from bwbench.experiment.plan.composing import COMPOSED
from bwbench.experiment.plan.estimate import not_reckoned_with
from bwbench.experiment.plan.first_exchange import may_arrive_alone
from bwbench.running.sweep import SweepPlan

# From the configuration alone; ``steps`` is up to the limit.
_ESTIMATED = ("num_parameters", "payload_bytes_per_step", "payload_bytes_per_rank", "wire_bytes_per_step",
              "ack_bytes_per_step", "compute_s", "communication_s", "step_s", "steps")  # fmt: skip
# Of the whole cell, or the runs that a composed one brings about; what that consists of, and what it rests on.
_PREDICTED = {"predicted_s": "total_s", "predicted_overhead_s": "overhead_s", "predicted_training_s": "training_s",
              "predicted_evaluation_s": "evaluation_s", "predicted_steps": "steps", "predicted_to_target": "to_target",
              "calibrated_by": "num_cells"}  # fmt: skip

_STOPS: tuple[Stopping, Stopping] = ("limit", "target")


def print_cells(sweep: SweepPlan) -> None:
    """Print what a sweep would do, in the order of the files."""
    planned, foreseen = _in_order(sweep), _foreseen(sweep)
    _print_table(planned[:MAX_ROWS], foreseen)
    if len(planned) > MAX_ROWS:
        stderr().print(f"… and {len(planned) - MAX_ROWS} more; --json lists all")
    of_cells = (
        *not_carried([item for item in planned if not item.part], foreseen.estimates),
        *not_reckoned_with(item.cell.config for item in planned if item.runs),
        *may_arrive_alone(planned, foreseen),
    )
    for text in (*sweep.notes, *doubts(planned), *of_cells):
        stderr().print(f"note: {text}")
    if memory := memory_words([item.cell.config for item in planned]):
        stderr().print(f"note: {memory}")
    cells = [item.cell for item in sweep.todo]
    for problem in (*device_problems(cells), *data_problems(cells)):
        stderr().print(f"note: not ready to run here: {problem}")
    skipped = sum(not item.runs and item.status in ("missing", "interrupted") for item in planned)
    left_out = f", {skipped} skipped" if skipped else ""
    count = f"{len(planned)} cell{'s' if len(planned) != 1 else ''}"
    stderr().print(f"{count}, {len(sweep.todo)} to run{left_out}{_total_in_words(sweep.todo, foreseen)}")


def print_cells_as_json(sweep: SweepPlan) -> None:
    """The same as JSON, with all that is known of each cell."""
    position = {(item.cell.experiment, item.cell.id): number for number, item in enumerate(sweep.todo, 1)}
    planned, foreseen = _in_order(sweep), _foreseen(sweep)
    cells = (_cell(item, position.get((item.cell.experiment, item.cell.id)), foreseen) for item in planned)
    print_json_rows("cells", cells, lambda: _beside_cells(sweep, foreseen))


def _in_order(sweep: SweepPlan) -> list[PlannedCell]:
    """The selected cells, as the files have them; of one part its runs, in running order."""
    if sweep.part:
        return list(sweep.selected)
    written = [(plan.experiment.name, cell.id) for plan in sweep.plans for cell in plan.cells]
    selected = {(item.cell.experiment, item.cell.id): item for item in sweep.selected}
    return [selected[key] for key in written if key in selected]


def _foreseen(sweep: SweepPlan) -> Forecast:
    try:
        return foresee(sweep.foreseen)
    except LaunchError as error:
        stderr().print(f"no predictions: {error}")
        return Forecast({})


def _total_in_words(todo: Sequence[PlannedCell], foreseen: Forecast) -> str:
    """``, at most about 3 min 10 s (predicted from 4 finished cells), mostly much less: …``; nothing where there are no
    predictions."""
    if not foreseen.estimates:
        return ""
    expected = [foreseen.predict(item) for item in todo]
    total_s = sum(one.total_s for one in expected)
    at_most = "" if expected and all(one.to_target for one in expected) else "at most "
    sooner = f", {MUCH_LESS}: training stops at the target" if any(one.may_end_sooner for one in expected) else ""
    cells = f"{foreseen.num_cells} finished cell{'s' if foreseen.num_cells > 1 else ''}"
    predicted = (
        f", {at_most}about {seconds(total_s)}{f' (predicted from {cells})' if foreseen.num_cells else ''}{sooner}"
    )
    to_limit_s, to_target_s = (sum(foreseen.predict(item, stop).total_s for item in todo) for stop in _STOPS)
    if to_target_s >= to_limit_s:  # no target, or nobody knows yet how far off it is
        return predicted
    return f"{predicted}; to the limit (stop: limit) {seconds(to_limit_s)}, to the target {seconds(to_target_s)}"


def _print_table(planned: Sequence[PlannedCell], foreseen: Forecast) -> None:
    numbers = ("RTT", "payload/step", "wire/step", "step", "at most")
    table = new_table("cell", "link", "RTT", "status", "why", *numbers[1:], right=numbers)
    for item in planned:
        link, found = item.cell.config.link, foreseen.estimates.get(item.cell.id)
        rtt = DURATION.format(float(f"{link.farthest_rtt_s:.6g}")) if link.shaped else "-"
        predicted = ("-",) * 4
        if found is not None:
            virtual = item.cell.config.compute.virtual  # nothing crosses a wire, and a step has no time that counts
            volumes = (size(found.payload_bytes_per_step), "-" if virtual else size(found.wire_bytes_per_step))
            expected = foreseen.predict(item) if item.runs or item.way != COMPOSED else None
            about = "about " if expected is not None and expected.to_target else ""
            total = seconds(expected.total_s) if expected is not None else "-"
            predicted = (*volumes, "virtual" if virtual else seconds(found.step_s), f"{about}{total}")
        asked = link.describe()
        description = asked.partition(" (")[0] + asked.partition(")")[2]
        table.add_row(item.cell.slug, description, rtt, item.status, item.why, *predicted)
    stdout().print(table)


def _beside_cells(sweep: SweepPlan, foreseen: Forecast) -> dict[str, object]:
    """What ``--json`` prints beside the cells; more fields may come.

    ``predicted_s`` is of all cells that are to run; ``predicted_limit_s`` and ``predicted_target_s`` as if all of them
    ended at their limit, and at their target as far as finished repeats have told where that is.
    """
    names = [plan.experiment.name for plan in sweep.plans]
    return {
        "experiment": names[0] if len(names) == 1 else None,
        "experiments": names,
        "order_seed": sweep.order_seed,
        "predicted_s": sum(foreseen.predict(item).total_s for item in sweep.todo) if foreseen.estimates else None,
        **{
            f"predicted_{stop}_s": sum(foreseen.predict(item, stop).total_s for item in sweep.todo)
            if foreseen.estimates
            else None
            for stop in _STOPS
        },
        "warnings": sweep.warnings,
        "notes": [
            *(text for text in sweep.notes if text not in sweep.warnings),
            *not_carried(sweep.selected, foreseen.estimates),
            *not_reckoned_with(item.cell.config for item in sweep.selected if item.runs),
            *may_arrive_alone(sweep.selected, foreseen),
        ],
        "device_problems": [str(problem) for problem in device_problems(item.cell for item in sweep.todo)],
        "data_problems": [str(problem) for problem in data_problems(item.cell for item in sweep.todo)],
    }


def _cell(item: PlannedCell, position: int | None, foreseen: Forecast) -> dict[str, object]:
    found = foreseen.estimates.get(item.cell.id)
    expected = foreseen.predict(item) if found is not None and (item.runs or item.way != COMPOSED) else None
    load = HostLoad.of(item.cell.config, found) if found is not None else None
    return {
        **{name: getattr(item.cell, name) for name in ("id", "slug", "experiment", "arm", "repeat")},
        "nodes": item.cell.config.nodes,
        "link": item.cell.config.link.describe(),
        "rtt_s": item.cell.config.link.farthest_rtt_s,
        "shrink": item.cell.config.shrink,
        "memory_bytes": memory_of(item.cell.config),
        "status": item.status,
        "runs": item.runs,
        "position": position,
        "why": item.why,
        "way": item.way,
        "folder": str(item.folder),
        **{name: getattr(found, name, None) for name in _ESTIMATED},
        "own_step_s": None if load is None else load.own_step_s(item.cell.config.nodes),
        **{key: getattr(expected, name, None) for key, name in _PREDICTED.items()},
        **{f"predicted_{s}_s": None if expected is None else foreseen.predict(item, s).total_s for s in _STOPS},
    }
