"""``bwbench plan``: what would run, why, and how long it should take; touches nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bwbench.cli.sweep import EXPERIMENTS, Files, Mode, Only, OrderSeed, Results, Set, Shard

if TYPE_CHECKING:
    from bwbench.experiment.plan import CellEstimate, Forecast, PlannedCell
    from bwbench.experiment.plan.calibration import Prediction
    from bwbench.running.sweep import SweepPlan


def plan(
    files: Files = None,
    set_: Set = None,
    results: Results = Path("results"),
    retry: Annotated[
        list[str] | None,
        typer.Option(metavar="STATUS", help="Count cells that ended so as to be run; repeatable, or a|b."),
    ] = None,
    only: Only = None,
    shard: Shard = None,
    order_seed: OrderSeed = 0,
    mode: Mode = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Show the cells of experiments: what is done, why each other one will run, bytes a step, predicted time.

    Without FILES those in experiments/. The time is that of a whole cell, from its start-up to the training limit: one
    that reaches its target ends earlier. Cells that have finished correct the times of the others. Nothing is written
    to the results.
    """
    from bwbench.cli.sweep import check_retry, overrides
    from bwbench.running.sweep import Selection, plan_sweep

    selection = Selection.parse(only or [], shard)
    paths = files or [EXPERIMENTS]
    planned = plan_sweep(paths, results, overrides(set_, mode), check_retry(retry), selection, order_seed)
    return show_sweep(planned, json_)


def show_sweep(sweep: SweepPlan, json: bool) -> int:
    """Print what a sweep would do, in the order of the files. Returns the exit status."""
    from bwbench.base.errors import EXIT_OK, LaunchError
    from bwbench.cli.output import MAX_ROWS, print_json_rows, stderr
    from bwbench.experiment.plan import Forecast, doubts, foresee

    position = {(item.cell.experiment, item.cell.id): number for number, item in enumerate(sweep.todo, 1)}
    written = [(plan.experiment.name, cell.id) for plan in sweep.plans for cell in plan.cells]
    selected = {(item.cell.experiment, item.cell.id): item for item in sweep.selected}
    planned = [selected[key] for key in written if key in selected]
    foreseen = Forecast({})
    try:
        foreseen = foresee(sweep.foreseen)
    except LaunchError as error:
        stderr().print(f"no predictions: {error}")
    if json:
        cells = (_cell(item, position.get((item.cell.experiment, item.cell.id)), foreseen) for item in planned)
        print_json_rows("cells", cells, lambda: _beside_cells(sweep, foreseen))
        return EXIT_OK
    _print_table(planned[:MAX_ROWS], foreseen)
    if len(planned) > MAX_ROWS:
        stderr().print(f"… and {len(planned) - MAX_ROWS} more; --json lists all")
    for text in (*sweep.notes, *doubts(planned)):
        stderr().print(f"note: {text}")
    skipped = sum(not item.runs and item.status in ("missing", "interrupted") for item in planned)
    left_out = f", {skipped} skipped" if skipped else ""
    stderr().print(f"{len(planned)} cells, {len(sweep.todo)} to run{left_out}{_total_in_words(sweep.todo, foreseen)}")
    return EXIT_OK


def _total_in_words(todo: Sequence[PlannedCell], foreseen: Forecast) -> str:
    """``, at most about 3 min 10 s (predicted from 4 finished cells)``; nothing where there are no predictions."""
    from bwbench.cli.output import seconds

    if not foreseen.estimates:
        return ""
    expected = [foreseen.predict(item) for item in todo]
    total_s = sum(one.total_s for one in expected)
    at_most = "" if expected and all(one.to_target for one in expected) else "at most "
    cells = f"{foreseen.num_cells} finished cell{'s' if foreseen.num_cells > 1 else ''}"
    return f", {at_most}about {seconds(total_s)}{f' (predicted from {cells})' if foreseen.num_cells else ''}"


def _print_table(planned: Sequence[PlannedCell], foreseen: Forecast) -> None:
    from bwbench.base.units import DURATION
    from bwbench.cli.output import new_table, seconds, size, stdout
    from bwbench.experiment.plan.composing import COMPOSED

    numbers = ("RTT", "payload/step", "wire/step", "step", "at most")
    table = new_table("cell", "link", "RTT", "status", "why", *numbers[1:], right=numbers)
    for item in planned:
        link, found = item.cell.config.link, foreseen.estimates.get(item.cell.id)
        rtt = DURATION.format(float(f"{link.rtt_s:.6g}")) if link.shaped else "-"
        predicted = ("-",) * 4
        if found is not None:
            volumes = (size(found.payload_bytes_per_step), size(found.wire_bytes_per_step))
            expected = foreseen.predict(item) if item.runs or item.way != COMPOSED else None
            about = "about " if expected is not None and expected.to_target else ""
            total = seconds(expected.total_s) if expected is not None else "-"
            predicted = (*volumes, seconds(found.step_s), f"{about}{total}")
        asked = link.describe()
        description = asked.partition(" (")[0] + asked.partition(")")[2]
        table.add_row(item.cell.slug, description, rtt, item.status, item.why, *predicted)
    stdout().print(table)


def _beside_cells(sweep: SweepPlan, foreseen: Forecast) -> dict[str, Any]:
    """What ``--json`` prints beside the cells; more fields may come. ``predicted_s``: of all cells that are to run."""
    names = [plan.experiment.name for plan in sweep.plans]
    return {
        "experiment": names[0] if len(names) == 1 else None,
        "experiments": names,
        "order_seed": sweep.order_seed,
        "predicted_s": sum(foreseen.predict(item).total_s for item in sweep.todo) if foreseen.estimates else None,
        "warnings": sweep.warnings,
        "notes": [text for text in sweep.notes if text not in sweep.warnings],
    }


def _cell(item: PlannedCell, position: int | None, foreseen: Forecast) -> dict[str, Any]:
    from bwbench.experiment.plan.composing import COMPOSED

    found = foreseen.estimates.get(item.cell.id)
    costs = found is not None and (item.runs or item.way != COMPOSED)
    return {
        "id": item.cell.id,
        "slug": item.cell.slug,
        "experiment": item.cell.experiment,
        "arm": item.cell.arm,
        "repeat": item.cell.repeat,
        "nodes": item.cell.config.nodes,
        "link": item.cell.config.link.describe(),
        "rtt_s": item.cell.config.link.rtt_s,
        "status": item.status,
        "runs": item.runs,
        "position": position,
        "why": item.why,
        "way": item.way,
        "folder": str(item.folder),
        **_of_a_step(found),
        **_times(foreseen.predict(item) if costs else None),
    }


def _of_a_step(found: CellEstimate | None) -> dict[str, Any]:
    """What is estimated from the configuration alone; ``steps`` is up to the limit."""
    names = ("num_parameters", "payload_bytes_per_step", "payload_bytes_per_rank", "wire_bytes_per_step",
             "ack_bytes_per_step", "compute_s", "communication_s", "step_s", "steps")  # fmt: skip
    return {name: getattr(found, name) if found is not None else None for name in names}


def _times(expected: Prediction | None) -> dict[str, Any]:
    """The whole cell, or the runs that a composed one brings about; what that consists of, and what it rests on."""
    names = {"predicted_s": "total_s", "predicted_overhead_s": "overhead_s", "predicted_training_s": "training_s",
             "predicted_evaluation_s": "evaluation_s", "predicted_steps": "steps", "predicted_to_target": "to_target",
             "calibrated_by": "num_cells"}  # fmt: skip
    return {key: getattr(expected, name) if expected is not None else None for key, name in names.items()}
