"""``bwbench launch-script``: a batch file that runs a sweep on a cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

MOST_TASKS = 1000  # Slurm's usual MaxArraySize is 1001


def launch_script(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Experiment files, or folders.", show_default=False)
    ],
    slurm: Annotated[
        bool, typer.Option("--slurm", help="For Slurm: an array job, one share of the cells a task.")
    ] = False,
    array: Annotated[
        int, typer.Option("--array", metavar="N", help="Tasks of the array job.", min=1, max=MOST_TASKS)
    ] = 1,
    results: Annotated[Path, typer.Option(help="Folder for results, seen by all machines.")] = Path("results"),
) -> int:
    """Print a batch file that runs a sweep on a cluster; nothing is started.

    For example: bwbench launch-script --slurm --array 8 experiments > sweep.sh, then sbatch sweep.sh. Every task runs
    `bwbench sweep --shard I/N` on a machine of its own, in the present folder and with the present Python.
    """
    from bwbench.cluster.slurm import array_script
    from bwbench.datasets.folder import VARIABLE
    from bwbench.errors import EXIT_OK, ConfigError
    from bwbench.sweep.files import experiment_files, load_experiments

    if not slurm:
        raise ConfigError("launch-script: say for which system, for example --slurm")
    experiments = load_experiments(experiment_files(files))
    script = array_script(
        command=[sys.executable, "-m", "bwbench.cli.main"],
        files=[str(file) for file in files],
        results=str(results),
        folder=os.getcwd(),
        num_tasks=array,
        environment={key: os.environ[key] for key in (VARIABLE,) if key in os.environ},
    )
    print(script, end="")
    print(f"{len(experiments)} experiment(s) in {array} task(s); submit with sbatch", file=sys.stderr)
    return EXIT_OK
