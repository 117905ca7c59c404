"""The options of commands that run experiments, each declared once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bwbench.base.errors import ConfigError
from bwbench.cli.option_classes import option

if TYPE_CHECKING:
    from bwbench.running.cluster.ray_executor import RayCluster
    from bwbench.running.sweep import SweepPlan

EXPERIMENTS = Path("experiments")
TUNING_SEED = 1000
MAX_WIDEN = 10

Results = Annotated[Path, option("Folder for results.")]


@dataclass(frozen=True)
class SweepOptions:
    """Which cells run, and how: the options of ``sweep``, in the order of its help. Others take some of them."""

    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]…", help="Experiment files (YAML), or folders of them.", show_default=False),
    ] = None
    set_: Annotated[
        list[str] | None, option("Override a key of the files; repeatable.", "--set", metavar="KEY=VALUE")
    ] = None
    results: Results = Path("results")
    retry: Annotated[
        list[str] | None,
        option(
            "Run cells again that ended as failed, timeout, diverged or invalid; repeatable, or a|b.", metavar="STATUS"
        ),
    ] = None
    only: Annotated[
        list[str] | None,
        option(
            "Only cells with this value (or a|b) of a key: arm, repeat, link.bandwidth, …; repeatable.",
            metavar="KEY=VALUE",
        ),
    ] = None
    shard: Annotated[
        str | None, option("The I-th of N parts, from 1: one for each machine or array job.", metavar="I/N")
    ] = None
    fail_fast: Annotated[bool, option("Stop after the first cell that is not done.", "--fail-fast")] = False
    notify: Annotated[
        str | None, option("Run this with sh for every cell that is not done, and at the end.", metavar="CMD")
    ] = None
    order_seed: Annotated[int, option("Seed of the order of cells inside a block of repeats.")] = 0
    on: Annotated[
        str | None, option("Run cells on the machines of a Ray cluster: ray, or ray://HOST:PORT.", metavar="WHERE")
    ] = None
    cells_per_machine: Annotated[
        int | None,
        option("With --on: cells at a time on one machine, whose times disturb each other. [1]", metavar="N", min=1),
    ] = None
    mode: Annotated[
        str | None,
        option("Run every cell whole, or compose most of them; in place of the key `mode`.", metavar="full|composed"),
    ] = None
    dry_run: Annotated[bool, option("Only show what would run, as `bwbench plan` does.", "--dry-run")] = False

    def planned(self) -> SweepPlan:
        """What is to be done; raises ConfigError for anything that is wrong."""
        from bwbench.experiment.plan.assess import ENDED_UNDONE
        from bwbench.running.sweep import Selection, plan_sweep

        overrides = [*(self.set_ or []), *([f"mode={self.mode}"] if self.mode is not None else [])]
        retry = retried(self.retry, ENDED_UNDONE)
        selection = Selection.parse(self.only or [], self.shard)
        return plan_sweep(self.files or [EXPERIMENTS], self.results, overrides, retry, selection, self.order_seed)

    def elsewhere(self) -> RayCluster | None:
        """Where cells run, if not here; raises ConfigError where that cannot be."""
        if self.on is None:
            if self.cells_per_machine is not None:
                raise ConfigError("--cells-per-machine goes with --on; here, cells of several sweeps take turns")
            return None
        from bwbench.running.cluster.ray_executor import RayCluster, ray_address

        return RayCluster(ray_address(self.on), self.cells_per_machine or 1)


@dataclass(frozen=True)
class TuneOptions:
    """How learning rates are searched: the options of ``tune``, in the order of its help."""

    set_: Annotated[
        list[str] | None, option("Override a key of the file; repeatable.", "--set", metavar="KEY=VALUE")
    ] = None
    results: Annotated[Path, option("Folder for results; trials lie in .tuning in it.")] = Path("results")
    output: Annotated[
        Path | None,
        option(
            "Table to write; by default the one that FILE names, or experiments/tuning/NAME.yaml.", "--output", "-o"
        ),
    ] = None
    seed: Annotated[int, option("Of all trials; no seed that is reported.", min=0, max=2**32 - 1)] = TUNING_SEED
    widen: Annotated[int, option("Powers of two to add at both ends of every grid.", min=0, max=MAX_WIDEN)] = 0
    retry: Annotated[
        list[str] | None, option("Run trials again that ended as failed, timeout or invalid; repeatable.")
    ] = None
    dry_run: Annotated[bool, option("Only show what would run, and for how long.", "--dry-run")] = False
    json_: Annotated[bool, option("Print JSON.", "--json")] = False


def retried(retry: Sequence[str] | None, allowed: Sequence[str], hints: Mapping[str, str] | None = None) -> list[str]:
    """The statuses after --retry; raises ConfigError for anything that is none, with the hint of that word."""
    wanted = [name for group in retry or [] for name in group.split("|")]
    for name in wanted:
        if name not in allowed:
            hint = (hints or {}).get(name, "")
            raise ConfigError(f"--retry {name!r} is no status that can be retried; allowed: {', '.join(allowed)}{hint}")
    return wanted
