"""Commands that run experiments: ``run``, ``sweep``, ``plan``, ``tune``, and ``launch-script`` for other machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bwbench.base.errors import EXIT_OK, ConfigError
from bwbench.cli.options import OnlyCells, Results, SetValues, SweepOptions, TuneOptions, option, takes_options

if TYPE_CHECKING:
    from bwbench.experiment.config.experiment import Experiment
    from bwbench.running.cluster.job_scripts import ScriptSetting
    from bwbench.running.sweep import Selection

MOST_PER_HOST = 64  # as ``workers`` of a host
MOST_TASKS = 1000  # Slurm's usual MaxArraySize is 1001

_File = Annotated[Path, typer.Argument(metavar="FILE", help="Experiment file (YAML).", show_default=False)]


@takes_options(without=("files", "shard", "order_seed", "on", "cells_per_machine"))
def run(*, file: _File, options: SweepOptions) -> int:
    """Run an experiment: every cell of its matrix that is not done yet.

    Run the same command again after an interruption: only what is missing runs. Exit status 0 when every cell is done,
    1 when some failed, 2 for a mistake in the file, 3 when this machine cannot make the links or the disk is full.
    """
    if file.is_dir():
        raise ConfigError(f"{file} is a folder; `bwbench sweep {file}` runs all experiments in it")
    return _sweep(replace(options, files=[file]))


@takes_options()
def sweep(*, options: SweepOptions) -> int:
    """Run all cells of many experiments that are not done yet; without FILES those in experiments/.

    All first repeats run before all second ones, in a shuffled order. What happens to the files meanwhile changes
    nothing. Run the same command again after an interruption: only what is missing runs. A second process with the same
    results takes part in the work. An arm whose cells fail three times the same way is left out. Exit status 0 when
    every cell is done, 1 when some failed, 2 for a mistake in a file, 3 when this machine cannot make the links or the
    disk is full.
    """
    return _sweep(options)


def _sweep(options: SweepOptions) -> int:
    elsewhere = options.elsewhere()
    planned = options.planned()
    if options.dry_run:
        from bwbench.cli.planned_cells import print_cells

        print_cells(planned)
        return EXIT_OK
    from bwbench.cli.carry_out import carry_out

    return carry_out(planned, elsewhere, options.notify, fail_fast=options.fail_fast)


@takes_options(
    without=("fail_fast", "notify", "on", "cells_per_machine", "dry_run"),
    helps={"retry": "Count cells that ended so as to be run; several as 'failed|timeout'. Repeatable."},
)
def plan(*, options: SweepOptions, json_: Annotated[bool, option("Print JSON.", "--json")] = False) -> int:
    """Show the cells of experiments: what is done, why each other one will run, bytes a step, predicted time.

    Without FILES those in experiments/. The time is that of a whole cell, from its start-up to the training limit: one
    that reaches its target ends earlier. Cells that have finished correct the times of the others. Nothing is written
    to the results.
    """
    from bwbench.cli.planned_cells import print_cells, print_cells_as_json

    planned = options.planned()
    print_cells_as_json(planned) if json_ else print_cells(planned)
    return EXIT_OK


@takes_options()
def tune(*, file: _File, options: TuneOptions) -> int:
    """Find a learning rate for every arm: as many trainings for all, on an unshaped link.

    Arms that compute the same mean share one search. Each rate of a grid of powers of two trains once, the five best on
    three seeds, and a parabola through their means says where the best lies: by samples to the target, then by the
    validation loss. The table that this writes is used by `optimizer: {tuned: FILE}`. Run the same command again after
    an interruption: it goes on.
    """
    from bwbench.cli.tuning_run import tune_rates

    return tune_rates(file, options)


def launch_script(
    *,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES", help="Experiment files, or folders.", show_default=False)
    ],
    slurm: Annotated[bool, option("For Slurm: a batch file for sbatch.", "--slurm")] = False,
    array: Annotated[
        int, option("Tasks of the array job, for launcher: local.", "--array", metavar="N", min=1, max=MOST_TASKS)
    ] = 1,
    per_host: Annotated[
        int, option("Ranks on each host, for launcher: external.", "--per-host", metavar="L", min=1, max=MOST_PER_HOST)
    ] = 1,
    set_: SetValues = None,
    results: Results = Path("results"),
    only: OnlyCells = None,
) -> int:
    """Print a shell file that runs experiments on other machines; nothing is started.

    For launcher: external, one torchrun a cell on every host, or with --slurm one srun. For launcher: local, with
    --slurm, an array job each of whose tasks runs its share of the cells on a machine of its own.
    """
    from bwbench.running.sweep.sweep_plan import Selection, experiment_files, load_experiments

    experiments = load_experiments(experiment_files(files), set_ or [])
    selection = Selection.parse(only or [])
    launchers = {point.config.launcher for experiment in experiments for point in experiment.points}
    if len(launchers) > 1:
        raise ConfigError(
            f"launch-script: launcher is {' and '.join(sorted(launchers))} in these files; name those of one launcher"
        )
    if launchers == {"ssh"}:
        raise ConfigError(
            "launch-script: 'bwbench run' starts cells with launcher: ssh by itself. Write 'launcher: external' for a "
            "file that you start on the hosts"
        )
    if slurm:
        _refuse_gpus_of_slurm(experiments, selection)
    if launchers == {"external"}:
        if array > 1:
            raise ConfigError(
                "launch-script: --array is for launcher: local; a job of an external one runs its cells in turn"
            )
        text, said = _external(experiments, selection, _setting(results), per_host, slurm=slurm)
    elif per_host > 1:
        raise ConfigError(
            "launch-script: --per-host is for launcher: external; cells with launcher: local have all ranks on one host"
        )
    elif slurm:
        from bwbench.running.cluster.job_scripts import array_script

        words = [f"--set={value}" for value in set_ or []] + [f"--only={value}" for value in only or []]
        text = array_script([str(file) for file in files], array, _setting(results), words)
        said = f"{len(experiments)} experiment(s) in {array} task(s); submit with sbatch"
    else:
        raise ConfigError(
            "launch-script: these cells have launcher: local, which one machine runs by itself. Say --slurm for an "
            "array job of them, or write 'launcher: external' (with 'link: unshaped') to train across machines"
        )
    print(text, end="")
    print(said, file=sys.stderr)
    return EXIT_OK


def _refuse_gpus_of_slurm(experiments: Sequence[Experiment], selection: Selection) -> None:
    """Raise ConfigError where a job would need GPUs, which our files do not ask Slurm for."""
    from bwbench.experiment.plan.cell import build_plan

    if all(point.config.compute.device == "cpu" for experiment in experiments for point in experiment.points):
        return
    cells = selection.of([cell for experiment in experiments for cell in build_plan(experiment).cells])
    if any(cell.config.compute.device != "cpu" for cell in cells):
        raise ConfigError(
            "launch-script: compute.device: cuda does not go with --slurm, whose file asks for no GPUs; write 'device: "
            "cpu', or run these cells on the machine that has the GPU: 'bwbench run'"
        )


def _external(
    experiments: Sequence[Experiment], selection: Selection, setting: ScriptSetting, per_host: int, *, slurm: bool
) -> tuple[str, str]:
    from bwbench.experiment.plan.cell import build_plan
    from bwbench.running.cluster.job_scripts import hosts_needed, slurm_script, torchrun_script

    cells = selection.of([cell for experiment in experiments for cell in build_plan(experiment).cells])
    hosts = hosts_needed(cells, per_host)
    where = f" with {per_host} ranks each" if per_host > 1 else ""
    if slurm:
        text = slurm_script(cells, setting, per_host)
        return text, f"{len(cells)} cell(s) on up to {hosts} node(s){where}; submit with sbatch"
    how = "HEAD=ADDRESS NODE=0 bash FILE on the first, NODE=1 on the second, and so on"
    if hosts % 2 == 0:
        how += f"; with WORKERS={2 * per_host} on each, half as many hosts"
    text = torchrun_script(cells, setting, per_host)
    return text, f"{len(cells)} cell(s) on up to {hosts} host(s){where}: {how}"


def _setting(results: Path) -> ScriptSetting:
    from bwbench.running.cluster.job_scripts import ScriptSetting
    from bwbench.training.datasets.dataset import DATA_VARIABLE

    environment = {key: os.environ[key] for key in (DATA_VARIABLE,) if key in os.environ}
    return ScriptSetting(sys.executable, os.getcwd(), str(results), environment)
