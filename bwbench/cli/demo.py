"""``demo``: one experiment that needs nothing but bwbench, from its question to its pictures and its answer."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bwbench.base.errors import EXIT_OK
from bwbench.cli.options import SweepOptions
from bwbench.cli.output import seconds, stderr, stdout
from bwbench.cli.result_commands import plot

if TYPE_CHECKING:
    from bwbench.results.analysis.results import Results

_ABOUT = "2 to 5 minutes on two processors"  # measured: benchmarks/package.py


def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for the results; made where there is none.")
    ] = Path("results"),
) -> int:
    """Four nodes on one 10 Mbit/s WiFi: which way of training gets there first? Some minutes, nothing to download.

    Runs the example wifi_10mbps (seven trainings on handwritten digits), draws its pictures and says the answer. Run
    the same command again after an interruption: only what is missing runs.
    """
    from bwbench.base.examples import DEMO, example_file

    sweep = SweepOptions(files=[example_file(DEMO)], results=folder).planned()
    own = folder / DEMO
    stderr().print(
        "Question: four laptops train together on one 10 Mbit/s WiFi. Which way gets to 93 % first, and is it worth "
        "more than one laptop?"
    )
    num_left, num_all = len(sweep.todo), len(sweep.selected)
    to_run = f"{num_left} of {num_all} trainings to run, {_ABOUT}" if num_left else f"all {num_all} trainings are done"
    stderr().print(f"{to_run}. Records go to {own}, pictures to {own / 'figures'}.")
    from bwbench.cli.carry_out import carry_out

    code = carry_out(sweep, None, None, fail_fast=False)
    if code != EXIT_OK:
        return code
    plot(own)
    from bwbench.records import cell_at
    from bwbench.results.analysis.answer import answers, whole_phrase
    from bwbench.results.analysis.results import Reader, results_of
    from bwbench.results.text import plain

    cells = [cell_at(item.folder) for item in sweep.selected]
    (group,) = results_of(cells, Reader())
    in_short = [f"Answer: {plain(whole_phrase(one))}" for one in answers(cells, labels=group.labels)]
    for line in [*in_short, *_worth(group), "", *_next_steps(own)]:
        stdout().print(line, soft_wrap=True)
    return code


def _worth(group: Results) -> list[str]:
    """Whether four nodes are worth it, in plain words."""
    from bwbench.methods.roles import HEADROOM, METHOD, REFERENCE

    times = group.times.assign(role=group.times["arm"].map(group.roles))
    first = {role: times[times["role"] == role].iloc[0] for role in (METHOD, REFERENCE, HEADROOM)}  # fastest first
    alone_s, together_s = first[REFERENCE]["time_s"], first[METHOD]["time_s"]
    if any(math.isinf(row["time_s"]) for row in first.values()):
        return ["Not every training reached 93 % this time; the table above says which."]
    worth = "worth it" if together_s < alone_s else "not worth it"
    free, name = alone_s / first[HEADROOM]["time_s"], group.labels[first[METHOD]["arm"]]
    return [
        f"One node alone needs {seconds(alone_s)}, four with {name} {seconds(together_s)}: in this run "
        f"four nodes were {worth} on this link.",
        f"A network that costs nothing would be {free:.2g} times as fast as one node.",
    ]


def _next_steps(own: Path) -> list[str]:
    return [f"Look at it:     bwbench report {shlex.quote(str(own))}", "Ask your own:   bwbench init"]
