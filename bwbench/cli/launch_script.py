"""``bwbench launch-script``: a shell file that runs experiments where another program starts the workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from bwbench.experiment.config.experiment import Experiment

MOST_TASKS = 1000  # Slurm's usual MaxArraySize is 1001


def launch_script(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Experiment files, or folders.", show_default=False)
    ],
    slurm: Annotated[bool, typer.Option("--slurm", help="For Slurm: a batch file for sbatch.")] = False,
    array: Annotated[
        int,
        typer.Option(
            "--array", metavar="N", help="Tasks of the array job, for launcher: local.", min=1, max=MOST_TASKS
        ),
    ] = 1,
    results: Annotated[Path, typer.Option(help="Folder for results.")] = Path("results"),
) -> int:
    """Print a shell file that runs experiments on other machines; nothing is started.

    For launcher: external, one torchrun a cell on every host, or with --slurm one srun: bwbench launch-script
    train.yaml > train.sh. For launcher: local, with --slurm, an array job each of whose tasks runs its share of the
    cells on a machine of its own: bwbench launch-script --slurm --array 8 experiments > sweep.sh.
    """
    from bwbench.base.errors import EXIT_OK, ConfigError
    from bwbench.running.sweep.sweep_plan import experiment_files, load_experiments

    experiments = load_experiments(experiment_files(files))
    launchers = {point.config.launcher for experiment in experiments for point in experiment.points}
    if len(launchers) > 1:
        raise ConfigError(f"launch-script: launcher is {' and '.join(sorted(launchers))} here; one at a time")
    if launchers == {"ssh"}:
        raise ConfigError(
            "launch-script: 'bwbench run' starts cells with launcher: ssh; 'external' leaves it to a file"
        )
    if launchers == {"external"}:
        if array > 1:
            raise ConfigError(
                "launch-script: --array is for launcher: local; a job of an external one runs its cells in turn"
            )
        text, said = _external(experiments, slurm, results)
    elif slurm:
        text, said = _array(len(experiments), files, array, results)
    else:
        raise ConfigError(
            "launch-script: these cells have launcher: local, which one machine runs by itself. Say --slurm for an "
            "array job of them, or write 'launcher: external' (with 'link: unshaped') to train across machines"
        )
    print(text, end="")
    print(said, file=sys.stderr)
    return EXIT_OK


def _array(num_experiments: int, files: Sequence[Path], num_tasks: int, results: Path) -> tuple[str, str]:
    from bwbench.running.cluster.job_scripts import ScriptSetting, array_script

    setting = ScriptSetting(sys.executable, os.getcwd(), str(results), _environment())
    text = array_script([str(file) for file in files], num_tasks, setting)
    return text, f"{num_experiments} experiment(s) in {num_tasks} task(s); submit with sbatch"


def _external(experiments: Sequence[Experiment], slurm: bool, results: Path) -> tuple[str, str]:
    from bwbench.experiment.plan.build import build_plan
    from bwbench.running.cluster.job_scripts import ScriptSetting, slurm_script, torchrun_script

    cells = [cell for experiment in experiments for cell in build_plan(experiment).cells]
    setting = ScriptSetting(sys.executable, os.getcwd(), str(results), _environment())
    hosts = max(cell.config.nodes for cell in cells)
    if slurm:
        return slurm_script(cells, setting), f"{len(cells)} cell(s) on up to {hosts} node(s); submit with sbatch"
    how = "HEAD=ADDRESS NODE=0 bash FILE on the first, NODE=1 on the second, and so on"
    return torchrun_script(cells, setting), f"{len(cells)} cell(s) on up to {hosts} host(s): {how}"


def _environment() -> dict[str, str]:
    from bwbench.training.datasets.folder import VARIABLE

    return {key: os.environ[key] for key in (VARIABLE,) if key in os.environ}
