"""``bwbench plan``: what would run, why, and how long it should take; touches nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bwbench.plan import Estimate, Plan, PlannedCell


MAX_ROWS = 500  # of a table: beyond that nobody reads it, and drawing it takes longer than planning


def plan(
    file: Annotated[Path, typer.Argument(help="Experiment file (YAML).", show_default=False)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the file; repeatable.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder for results.")] = Path("results"),
    retry: Annotated[
        list[str] | None, typer.Option(help="Count cells that ended with this status as to be run; repeatable.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Show the cells of an experiment: what is done, why each other one will run, bytes a step, predicted time.

    The time is that until the training limit, without overlap of computing and sending: a cell that reaches its target
    ends earlier. Nothing is written to the results.
    """
    from bwbench.cli.output import print_json, stderr
    from bwbench.cli.run import check_retry
    from bwbench.config import load_experiment
    from bwbench.errors import EXIT_OK, LaunchError
    from bwbench.plan import assess, build_plan, doubts, estimate_cells

    made = build_plan(load_experiment(file, set_ or []))
    planned = assess(made.cells, results, check_retry(retry))
    estimates: dict[str, Estimate] = {}
    try:
        estimates = estimate_cells(made.cells)
    except LaunchError as error:
        stderr().print(f"no predictions: {error}")
    if json_:
        print_json(_content(made, planned, estimates))
        return EXIT_OK
    _print_table(planned[:MAX_ROWS], estimates)
    if len(planned) > MAX_ROWS:
        stderr().print(f"… and {len(planned) - MAX_ROWS} more; --json lists all")
    for text in (*made.experiment.warnings, *made.notes, *doubts(planned)):
        stderr().print(f"note: {text}")
    todo = [item for item in planned if item.runs]
    total_s = sum(estimates[item.cell.id].predicted_s for item in todo) if estimates else None
    stderr().print(f"{len(planned)} cells, {len(todo)} to run{_within(total_s)}")
    return EXIT_OK


def _within(total_s: float | None) -> str:
    from bwbench.cli.output import seconds

    return f", at most about {seconds(total_s)} of training" if total_s is not None else ""


def _print_table(planned: Sequence[PlannedCell], estimates: Mapping[str, Estimate]) -> None:
    from bwbench.cli.output import new_table, seconds, size, stdout
    from bwbench.units import DURATION

    numbers = ("RTT", "payload/step", "wire/step", "step", "at most")
    table = new_table("cell", "link", "RTT", "status", "why", *numbers[1:], right=numbers)
    for item in planned:
        link, found = item.cell.config.link, estimates.get(item.cell.id)
        rtt = DURATION.format(float(f"{link.rtt_s:.6g}")) if link.shaped else "-"
        predicted = ("-",) * 4
        if found is not None:
            volumes = (size(found.payload_bytes_per_step), size(found.wire_bytes_per_step))
            predicted = (*volumes, seconds(found.step_s), seconds(found.predicted_s))
        asked = link.describe()
        description = asked.partition(" (")[0] + asked.partition(")")[2]
        table.add_row(item.cell.slug, description, rtt, item.status, item.why, *predicted)
    stdout().print(table)


def _content(made: Plan, planned: Sequence[PlannedCell], estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    """What ``--json`` prints; more fields may come to stand beside these."""
    return {
        "experiment": made.experiment.name,
        "cells": [_cell(item, estimates.get(item.cell.id)) for item in planned],
        "warnings": list(made.experiment.warnings),
        "notes": made.notes,
    }


def _cell(item: PlannedCell, found: Estimate | None) -> dict[str, Any]:
    from bwbench.plan import Estimate

    predicted: dict[str, Any] = asdict(found) if found is not None else dict.fromkeys(Estimate.__dataclass_fields__)
    return {
        "id": item.cell.id,
        "slug": item.cell.slug,
        "arm": item.cell.arm,
        "repeat": item.cell.repeat,
        "nodes": item.cell.config.nodes,
        "link": item.cell.config.link.describe(),
        "rtt_s": item.cell.config.link.rtt_s,
        "status": item.status,
        "runs": item.runs,
        "why": item.why,
        "folder": str(item.folder),
        **predicted,
    }
