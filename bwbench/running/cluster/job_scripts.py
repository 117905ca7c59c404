"""Shell files for where another program starts us: an array job of Slurm, one job of it, or torchrun on every host.

What an array job shares with ``--on ray`` is the sweep itself: each task runs ``bwbench sweep --shard I/N``, whose
scheduler gives cells to that one machine, and the claims in the results folder keep tasks apart. Slurm decides when and
where a task runs, and nothing of ours watches over it.

The other two start the workers of single cells, of ``launcher: external``. They carry the cells: a host needs no more.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bwbench.base.errors import ConfigError
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.given_cell import CELL_ID, ERRORS_ONLY, PLUGINS, TORCH_LOG_LEVEL, planned_environment

_UNFIT_FOR_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 40
_END_OF_CELL = "END_OF_CELL"
_SAFE_PATH = "export PYTHONSAFEPATH=1  # from Python 3.11 on: no module is taken from the working directory"
# Says what was planned, which workers check, and writes the cell's file where it is missing.
_KEEP_CELL = (
    f'  export {CELL_ID}="${{2##*-}}" {PLUGINS}="${{3:-}}"\n'
    '  mkdir -p "${cell%/*}" && { [ -s "$cell" ] && cat > /dev/null || cat > "$cell"; } || exit'
)


@dataclass(frozen=True)
class ScriptSetting:
    """Where the workers run.

    Attributes:
        python: interpreter with bwbench.
        folder: where they are started.
        results: folder for results, against ``folder`` where it is relative.
        environment: variables that they get.
    """

    python: str
    folder: str
    results: str
    environment: Mapping[str, str]


def array_script(files: Sequence[str], num_tasks: int, setting: ScriptSetting, options: Sequence[str] = ()) -> str:
    """Text of a batch file: ``num_tasks`` tasks, each alone on a machine, each with its own ``--shard``.

    Every value is quoted for the shell and stands outside the ``#SBATCH`` lines, whose ``%`` Slurm would expand.

    Args:
        files: experiment files and folders, against the setting's folder where they are relative.
        setting: seen by all machines.
        options: more of them for ``bwbench sweep``.
    """
    name = _job_name(files[0].rpartition("/")[2].partition(".")[0]) or "sweep"
    words = [setting.python, "-m", "bwbench.cli.main", "sweep", f"--results={setting.results}", *options]
    exports = [f"export {key}={shlex.quote(value)}" for key, value in sorted(setting.environment.items())]
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name=bwbench-{name}",
            f"#SBATCH --array=1-{num_tasks}",
            "#SBATCH --nodes=1",
            "#SBATCH --ntasks=1",
            "#SBATCH --exclusive",
            "# --exclusive: whoever shares a machine shares its cores, and a cell would measure that.",
            "# What your site asks for (--partition, --time, --account) goes here, or between sbatch and this file.",
            "# Submit it again to go on: only cells that are missing run.",
            "set -eu",
            f"cd {shlex.quote(setting.folder)}",
            *exports,
            _SAFE_PATH,
            f"exec {shlex.join(words)} \\",
            f'  --shard "$SLURM_ARRAY_TASK_ID/{num_tasks}" \\',
            f"  -- {shlex.join(files)}",
            "",
        ]
    )


def torchrun_script(cells: Sequence[Cell], setting: ScriptSetting, per_host: int = 1) -> str:
    """Text of a file that is started once on every host, with NODE and HEAD set: one torchrun a cell.

    Every value of the user's is quoted for the shell; cells stand in here-documents that the shell leaves alone.

    Args:
        per_host: ranks that a host starts where WORKERS does not say another number.
    """
    ranks = max(cell.config.nodes for cell in cells)
    hosts = hosts_needed(cells, per_host)
    return "\n".join(
        [
            "#!/bin/bash",
            f"# {len(cells)} cell(s) on {hosts} host(s), one after another. Start it on every host, NODE counting",
            "# from 0 on the one whose address is HEAD, which keeps the results:",
            "#   HEAD=192.168.1.10 NODE=0 bash this-file",
            "# WORKERS=2, on all of them, starts two ranks a host, so that half as many hosts are needed."
            if per_host == 1
            else f"# A host starts {per_host} ranks; WORKERS=1, on all of them, starts one, on as many more hosts.",
            "# Ctrl-C ends it on one host: end it on the others too before it is started again on all.",
            "# Cells that are done are left out. PORT (29400) and the one after it must be open on HEAD; between all",
            "# hosts any port must be. PYTHON is the interpreter that has bwbench; RESULTS the folder for results.",
            "set -u",
            f'WORKERS="${{WORKERS:-{per_host}}}"',
            'case "$WORKERS" in *[!0-9]* | 0*) echo "WORKERS=$WORKERS: write a number, 1 or more" >&2; exit 2;; esac',
            f'if [ {ranks} -gt "$WORKERS" ]; then',
            '  : "${HEAD:?set HEAD to the address of the host with NODE=0}" '
            '"${NODE:?set NODE to the number of this host, from 0}"',
            "fi",
            'HEAD="${HEAD:-127.0.0.1}" NODE="${NODE:-0}" PORT="${PORT:-29400}"',
            "# As torchrun sets it for several, with a page of words.",
            '[ "$WORKERS" -eq 1 ] || export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"',
            *_common(setting),
            'command -v "$PYTHON" > /dev/null || PYTHON=python3  # this file was made on another host',
            "run() {  # NODES FOLDER PLUGINS, the cell on standard input",
            '  local cell="$RESULTS/$2/cell.json" port=$((PORT + count % 2)) each=$((WORKERS < $1 ? WORKERS : $1))',
            "  count=$((count + 1))",
            "  if [ $(($1 % each)) -ne 0 ]; then",
            '    echo "$2: $1 nodes cannot be $WORKERS a host; write another WORKERS" >&2',
            "    failed=$((failed + 1)); cat > /dev/null; return 0",
            "  fi",
            '  [ $((NODE * each)) -lt "$1" ] || { cat > /dev/null; return 0; }',
            _KEEP_CELL,
            '  "$PYTHON" -m bwbench.training.loop.torchrun --nnodes=$(($1 / each)) --nproc-per-node="$each" \\',
            '    --node-rank="$NODE" \\',
            '    --master-addr="$HEAD" --master-port="$port" --max-restarts=0 --rdzv-conf timeout=86400 \\',
            '    -m bwbench.training.loop.worker "$cell"',
            "  local status=$?",
            "  case $status in",
            "    0) ;;",
            "    # SIGHUP, SIGINT (Ctrl-C), SIGTERM: nobody wants the cells that would come now.",
            "    129 | 130 | 143) echo 'interrupted; start it again, on all hosts, to go on' >&2; exit $status;;",
            "    *) failed=$((failed + 1));;",
            "  esac",
            "}",
            *_cells(cells),
        ]
    )


def slurm_script(cells: Sequence[Cell], setting: ScriptSetting, per_host: int = 1) -> str:
    """Text of a batch file: one ``srun`` a cell, ``per_host`` workers a node of the cluster. As above otherwise."""
    hosts = hosts_needed(cells, per_host)
    threads = ['export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"  # as torchrun sets it for several'] * (per_host > 1)
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name=bwbench-{_job_name(cells[0].experiment) or 'cells'}",
            f"#SBATCH --nodes={hosts}",
            f"#SBATCH --ntasks-per-node={per_host}",
            "#SBATCH --exclusive",
            "# --exclusive: whoever shares a machine shares its cores and its network, and a cell would measure that.",
            "# What your site asks for (--partition, --time, --account) goes here, or between sbatch and this file.",
            f"# {len(cells)} cell(s), one after another. Submit it again to go on: cells that are done are left out.",
            "set -u",
            f"cd {shlex.quote(setting.folder)} || exit",
            *_common(setting),
            *threads,
            'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
            "export MASTER_ADDR",
            "run() {  # NODES FOLDER PLUGINS, the cell on standard input",
            f'  local cell="$RESULTS/$2/cell.json" each=$(({per_host} < $1 ? {per_host} : $1))',
            _KEEP_CELL,
            "  # Another port for every cell: the system keeps the last one for a while.",
            "  export MASTER_PORT=$((20000 + (SLURM_JOB_ID * 7 + count) % 20000))",
            "  count=$((count + 1))",
            '  srun --nodes=$(($1 / each)) --ntasks="$1" --ntasks-per-node="$each" --distribution=block \\',
            "    --kill-on-bad-exit=1 --wait=60 \\",
            '    "$PYTHON" -m bwbench.training.loop.worker "$cell" || failed=$((failed + 1))',
            "}",
            *_cells(cells),
        ]
    )


def hosts_needed(cells: Sequence[Cell], per_host: int) -> int:
    """How many hosts the largest cell needs with so many ranks on each; a smaller cell may fit on one.

    Raises ConfigError where the ranks of a cell cannot be dealt out so.
    """
    for cell in cells:
        if (nodes := cell.config.nodes) % min(per_host, nodes):
            raise ConfigError(
                f"--per-host {per_host}: cell {cell.folder_name} has {nodes} nodes, which cannot be {per_host} a host; "
                "write a divisor of it, or leave that cell out (--only)"
            )
    return max(-(-cell.config.nodes // per_host) for cell in cells)


def _job_name(text: str) -> str:
    """As much of ``text`` as may stand in a line that Slurm reads."""
    return _UNFIT_FOR_A_NAME.sub("-", text).strip("-")[:_LONGEST_NAME]


def _common(setting: ScriptSetting) -> list[str]:
    return [
        *(
            f'if [ -z "${{{key}:-}}" ]; then export {key}={shlex.quote(value)}; fi'
            for key, value in sorted(setting.environment.items())
        ),
        f'if [ -z "${{PYTHON:-}}" ]; then PYTHON={shlex.quote(setting.python)}; fi',
        f'if [ -z "${{RESULTS:-}}" ]; then RESULTS={shlex.quote(setting.results)}; fi',
        _SAFE_PATH,
        f'export {TORCH_LOG_LEVEL}="${{{TORCH_LOG_LEVEL}:-{ERRORS_ONLY}}}"',
        "count=0 failed=0",
    ]


def _cells(cells: Sequence[Cell]) -> list[str]:
    lines = []
    for cell in cells:
        folder, plugins = f"{cell.experiment}/{cell.folder_name}", planned_environment(cell)[PLUGINS]
        words = shlex.join([str(cell.config.nodes), folder, *([plugins] if plugins else [])])
        lines += [f"run {words} <<'{_END_OF_CELL}'", json.dumps(cell.to_json()), _END_OF_CELL]
    return [*lines, '[ "$failed" -eq 0 ] || { echo "$failed cell(s) failed" >&2; exit 1; }', ""]
