"""The options of commands that run experiments, each declared once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bwbench.base.errors import ConfigError

if TYPE_CHECKING:
    from bwbench.running.cluster.ray_executor import RayCluster
    from bwbench.running.sweep import SweepPlan

EXPERIMENTS = Path("experiments")
TUNING_SEED = 1000
MAX_WIDEN = 10

Results = Annotated[Path, typer.Option(help="Folder for results.")]


@dataclass(frozen=True)
class SweepOptions:
    """Which cells run, and how: the options of ``sweep``, in the order of its help. Others take some of them."""

    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]…", help="Experiment files (YAML), or folders of them.", show_default=False),
    ] = None
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the files; repeatable.")
    ] = None
    results: Results = Path("results")
    retry: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATUS",
            help="Run cells again that ended as failed, timeout, diverged or invalid; repeatable, or a|b.",
        ),
    ] = None
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Only cells with this value (or a|b) of a key: arm, repeat, link.bandwidth, …; repeatable.",
        ),
    ] = None
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="The I-th of N parts, from 1: one for each machine or array job.")
    ] = None
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop after the first cell that is not done.")] = False
    notify: Annotated[
        str | None,
        typer.Option(metavar="CMD", help="Run this with sh for every cell that is not done, and at the end."),
    ] = None
    order_seed: Annotated[int, typer.Option(help="Seed of the order of cells inside a block of repeats.")] = 0
    on: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help="Run cells on the machines of a Ray cluster: ray, or ray://HOST:PORT."),
    ] = None
    cells_per_machine: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="With --on: cells at a time on one machine, whose times disturb each other. [1]", min=1
        ),
    ] = None
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="full|composed", help="Run every cell whole, or compose most of them; in place of the key `mode`."
        ),
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would run, as `bwbench plan` does.")] = (
        False
    )

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
        from bwbench.running.cluster.ray_executor import RayCluster

        return RayCluster.parse(self.on, self.cells_per_machine or 1)


@dataclass(frozen=True)
class TuneOptions:
    """How learning rates are searched: the options of ``tune``, in the order of its help."""

    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the file; repeatable.")
    ] = None
    results: Annotated[Path, typer.Option(help="Folder for results; trials lie in .tuning in it.")] = Path("results")
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Table to write; by default the one that FILE names, or experiments/tuning/NAME.yaml.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of all trials; no seed that is reported.")] = (
        TUNING_SEED
    )
    widen: Annotated[
        int, typer.Option(min=0, max=MAX_WIDEN, help="Powers of two to add at both ends of every grid.")
    ] = 0
    retry: Annotated[
        list[str] | None, typer.Option(help="Run trials again that ended as failed, timeout or invalid; repeatable.")
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would run, and for how long.")] = False
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


def retried(retry: Sequence[str] | None, allowed: Sequence[str], hints: Mapping[str, str] | None = None) -> list[str]:
    """The statuses after --retry; raises ConfigError for anything that is none, with the hint of that word."""
    wanted = [name for group in retry or [] for name in group.split("|")]
    for name in wanted:
        if name not in allowed:
            hint = (hints or {}).get(name, "")
            raise ConfigError(f"--retry {name!r} is no status that can be retried; allowed: {', '.join(allowed)}{hint}")
    return wanted
