"""Composed cells: which of a sweep are composed, which run whole to compare, and the two runs that one is made from.

Both runs are ordinary cells with an identity of their own, so that they are found again. The *convergence cell* has no
link and no declared step time: it says how many steps the target takes. It is the same for all links, and for all
experiments. The *timing cell* takes some dozens of steps on the link: it is the same for all repeats. There are several
of them, since the time of a step varies from run to run.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bwbench.base.component import Component
from bwbench.base.registry import ALGORITHMS
from bwbench.base.step_time import SteadyStepTime
from bwbench.experiment.config.cell_config import MAX_SEED, CellConfig, ComputeConfig
from bwbench.experiment.config.combinations import needs_workers
from bwbench.experiment.config.experiment import Experiment, WholeConfig
from bwbench.experiment.config.method_names import arm_name
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.described_models import describe
from bwbench.experiment.plan.estimate import estimate_cells
from bwbench.experiment.plan.sending import traffic_of
from bwbench.methods.phases import LEAST_STEPS, Phase, timing_steps
from bwbench.methods.traffic import transfer_time_s, waiting_time_s
from bwbench.network.link import Link
from bwbench.records.cell_identity import identity

Way = Literal["whole", "composed", "checked"]
WHOLE: Way = "whole"
COMPOSED: Way = "composed"
CHECKED: Way = "checked"  # run whole, and composed as well

CONVERGENCE, TIMING = PART_KINDS = ("convergence", "timing")  # the runs that a cell is composed from
CONVERGENCE_FOLDER = ".convergence"  # below results/
TIMING_FOLDER = ".timing"  # below results/<experiment>/
TIMED_S = 8.0  # of the machine a timing run takes, where steps are short: a hiccup of it then counts less …
MOST_STEPS = 4 * LEAST_STEPS  # … but not many more steps than this
USUAL_COMPUTE_S = 0.03  # of a step, where none is declared: identities must not depend on how fast a machine is
DRAWN_ERROR = 0.03  # standard error of what a node's drawn step times are on average, in one timing run
CALM = 0.01  # of the learning rate, where a timing run hurries through a warm-up: it shall not diverge


def ways(experiment: Experiment, cells: Sequence[Cell]) -> dict[str, Way]:
    """The way of each cell by its id; cells that are not in it run whole.

    The choice depends on the experiment alone, so that a sweep that is interrupted goes on with the same one. Where
    ``whole.time`` limits it, models are described for that: raises ConfigError and LaunchError as ``describe``.
    """
    if experiment.mode != "composed":
        return {}
    composable = [cell for cell in cells if not runs_whole_anyway(cell.config)]
    estimates = estimate_cells(composable) if experiment.whole.time_s is not None and composable else {}

    def cost_s(cell: Cell) -> float:
        return estimates[cell.id].predicted_s

    checked = {cell.id for cell in choose_whole(composable, experiment.whole, cost_s if estimates else None)}
    return {cell.id: CHECKED if cell.id in checked else COMPOSED for cell in composable}


def choose_whole(
    cells: Sequence[Cell], whole: WholeConfig, cost_s: Callable[[Cell], float] | None = None
) -> list[Cell]:
    """The cells to run whole, in the order in which they were chosen. Pure.

    One after the other a pair of link and arm gives a cell, whichever has been taken least often. So every link and
    every arm comes once before any comes twice, as far as there are enough.

    Args:
        cells: those that are composed.
        cost_s: predicted seconds of a cell, where ``whole.time_s`` sets a limit. Beyond ``at_least`` cells, one that
            does not fit any more is passed over.
    """
    wanted = min(len(cells), max(whole.at_least, math.ceil(whole.share * len(cells) - 1e-9)))
    waiting: dict[tuple[str, str], deque[Cell]] = {}
    for cell in cells:
        waiting.setdefault((cell.config.link.canonical_json, cell.arm), deque()).append(cell)
    chosen: list[Cell] = []
    taken: Counter[tuple[str, str]] = Counter()
    links: Counter[str] = Counter()
    arms: Counter[str] = Counter()
    spent_s = 0.0
    while waiting and len(chosen) < wanted:
        pair = min(waiting, key=lambda p: (taken[p], links[p[0]] + arms[p[1]], max(links[p[0]], arms[p[1]])))
        cell = waiting[pair].popleft()
        if not waiting[pair]:
            del waiting[pair]
        needed_s = cost_s(cell) if cost_s is not None and whole.time_s is not None else 0.0
        if len(chosen) >= whole.at_least and whole.time_s is not None and spent_s + needed_s > whole.time_s:
            continue
        spent_s += needed_s
        chosen.append(cell)
        taken[pair] += 1
        links[pair[0]] += 1
        arms[pair[1]] += 1
    return chosen


@dataclass(frozen=True)
class Parts:
    """What a cell is composed from.

    Attributes:
        convergence: a cell.
        timings: cells that differ in nothing but their seed; ``repeat`` numbers them, from 0.
        phases: of the method; ``timing_phases`` with the options of the timing cell.
        config: of the cell itself; ``shapes`` of its model's parameters.
    """

    convergence: Cell
    timings: tuple[Cell, ...]
    phases: tuple[Phase, ...]
    timing_phases: tuple[Phase, ...]
    config: CellConfig
    shapes: tuple[tuple[int, ...], ...]

    @property
    def timing(self) -> Cell:
        """The first timing cell, the only one that a cell with one timing run has."""
        return self.timings[0]

    @property
    def seconds_per_byte(self) -> float:
        """What a payload byte more, summed over the ranks, adds to a step on the link.

        By the estimate of what the method sends: seconds of a step beyond its latencies, over its bytes.
        """
        traffic = traffic_of(self.config, self.shapes)
        if not traffic.total_bytes:
            return 0.0
        latency_s = waiting_time_s(self.config.link, traffic)
        return (transfer_time_s(self.config.link, traffic) - latency_s) / traffic.total_bytes


def runs_whole_anyway(config: CellConfig) -> bool:
    """Whether composing would save nothing: neither link nor padding, or a limit as short as a timing run."""
    if _without_link(config, virtual=config.compute.virtual) == config:
        return True
    hurried = _phases(_hurried(config), ((1,),))
    least = max(LEAST_STEPS, _steps_of_draws(config))
    return timing_steps(hurried, least) * config.global_batch >= config.limit.samples


def parts_of(cell: Cell, shapes: Sequence[tuple[int, ...]] | None = None, timing_runs: int = 1) -> Parts:
    """All cells that are run for one that is composed.

    Args:
        timing_runs: how many of them time its steps; the first is the same however many follow.
        shapes: of the model's parameters; without, the describing process is asked, which remembers them.

    Raises ConfigError and LaunchError as ``describe``.
    """
    if shapes is None:
        shapes = describe([cell.config])[0].parameter_shapes
    convergence = convergence_config(cell.config)
    hurried = _hurried(cell.config)
    timing_phases = _phases(hurried, shapes)
    first = _timing_config(cell, hurried, timing_phases, shapes)
    timed = [first.model_copy(update={"seed": (first.seed + run) % (MAX_SEED + 1)}) for run in range(timing_runs)]
    arm = cell.slug.rpartition("-s")[0] or cell.slug
    task = f"{convergence.model.name}-{convergence.dataset.source.name}-n{convergence.nodes}"
    about = f"{arm_name(convergence)}-{task}"
    return Parts(
        convergence=replace(
            cell,
            id=identity(convergence),
            slug=f"{about}-s{convergence.seed}",
            experiment=CONVERGENCE_FOLDER,
            config=convergence,
        ),
        timings=tuple(
            replace(
                cell,
                id=identity(config),
                slug=f"{arm}-timing" + (f"-{run + 1}" if run else ""),
                repeat=run,
                config=config,
            )
            for run, config in enumerate(timed)
        ),
        phases=_phases(cell.config.algorithm, shapes),
        timing_phases=timing_phases,
        config=cell.config,
        shapes=tuple(shapes),
    )


def convergence_config(config: CellConfig) -> CellConfig:
    """The same training with no link between the nodes, which are virtual where the method allows it.

    Arms that differ in how they send alone, as rings do that are paced and not, share it.
    """
    apart = _without_link(config, virtual=config.launcher == "local" and needs_workers(config) is None)
    return apart.model_copy(update={"collective": apart.collective.without_link()})


def _without_link(config: CellConfig, *, virtual: bool) -> CellConfig:
    """As fast as this machine can."""
    return config.model_copy(
        update={
            "link": Link.model_validate("unshaped"),
            "compute": ComputeConfig(threads=config.compute.threads, virtual=virtual, device=config.compute.device),
            "limit": config.limit.model_copy(update={"time_s": None}),
            "dilation": 1.0,
        }
    )


def _timing_config(
    cell: Cell, hurried: Component, phases: Sequence[Phase], shapes: Sequence[tuple[int, ...]]
) -> CellConfig:
    """Some dozens of steps on the link, with the seed of the first repeat."""
    config = cell.config
    means_s = [one.mean_s for one in config.compute.step_times(config.nodes) if isinstance(one, SteadyStepTime)]
    step_s = transfer_time_s(config.link, traffic_of(config, shapes)) + max(means_s, default=USUAL_COMPUTE_S)
    machine_s = config.dilation * step_s
    least = max(min(MOST_STEPS, max(LEAST_STEPS, math.ceil(TIMED_S / machine_s))), _steps_of_draws(config))
    update: dict[str, object] = {
        "algorithm": hurried,
        "target": None,
        "targets": (),
        "stop": "limit",
        "seed": config.seed - cell.repeat,
        "evaluate": config.evaluate.without_test_curve(),  # nobody asks what it learns, so that its identity stays
        "limit": config.limit.model_copy(
            update={"samples": timing_steps(phases, least) * config.global_batch, "time_s": None}
        ),
    }
    if any(phase.num_steps is not None for phase in phases):
        options = config.optimizer.options
        rate = CALM * float(getattr(options, "lr", 0.0))
        update["optimizer"] = replace(config.optimizer, options=options.model_copy(update={"lr": rate}))
    return config.model_copy(update=update)


def _steps_of_draws(config: CellConfig) -> int:
    """So many steps whose drawn times have a mean that is known to ``DRAWN_ERROR``; 0 where none is drawn."""
    times = config.compute.step_times(config.nodes)
    return max(
        (math.ceil((one.spread / DRAWN_ERROR) ** 2) for one in times if isinstance(one, SteadyStepTime)), default=0
    )


def _hurried(config: CellConfig) -> Component:
    return replace(config.algorithm, options=config.algorithm.build(ALGORITHMS).for_timing())


def _phases(algorithm: Component, shapes: Sequence[tuple[int, ...]]) -> tuple[Phase, ...]:
    phases: tuple[Phase, ...] = algorithm.build(ALGORITHMS).phases(shapes)
    return phases
