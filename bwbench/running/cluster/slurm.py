"""A batch file for Slurm: an array job whose tasks each run their share of a sweep."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

_UNFIT_FOR_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 40


def array_script(
    command: Sequence[str],
    files: Sequence[str],
    results: str,
    folder: str,
    num_tasks: int,
    environment: Mapping[str, str],
) -> str:
    """Text of a batch file: ``num_tasks`` tasks, each alone on a machine, each with its own ``--shard``.

    Every value is quoted for the shell and stands outside the ``#SBATCH`` lines, whose ``%`` Slurm would expand.

    Args:
        command: the words that start bwbench.
        files: experiment files and folders, against ``folder`` where they are relative.
        results: folder for results, one for all tasks.
        folder: where the tasks are started, seen by all machines.
        environment: variables that the tasks get.
    """
    name = _UNFIT_FOR_A_NAME.sub("-", files[0].rpartition("/")[2].partition(".")[0]).strip("-")[:_LONGEST_NAME]
    words = [*command, "sweep", f"--results={results}"]
    exports = [f"export {key}={shlex.quote(value)}" for key, value in sorted(environment.items())]
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name=bwbench-{name or 'sweep'}",
            f"#SBATCH --array=1-{num_tasks}",
            "#SBATCH --nodes=1",
            "#SBATCH --ntasks=1",
            "#SBATCH --exclusive",
            "# --exclusive: whoever shares a machine shares its cores, and a cell would measure that.",
            "# What your site asks for (--partition, --time, --account) goes here, or between sbatch and this file.",
            "# Submit it again to go on: only cells that are missing run.",
            "set -eu",
            f"cd {shlex.quote(folder)}",
            *exports,
            f"exec {shlex.join(words)} \\",
            f'  --shard "$SLURM_ARRAY_TASK_ID/{num_tasks}" \\',
            f"  -- {shlex.join(files)}",
            "",
        ]
    )
