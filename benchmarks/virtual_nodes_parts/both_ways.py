"""One short cell by real workers and by virtual nodes: what both must have alike, to the bit."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from training_parts.arms import one_cell
from training_parts.pool import Pool

from bwbench.base.registry import ALGORITHMS
from bwbench.experiment.config.combinations import needs_workers
from bwbench.experiment.config.method_names import PRESETS
from bwbench.experiment.plan.cell import Cell
from bwbench.methods.phases import TIMED_PERIOD
from bwbench.network.namespaces.addresses import MAX_NODES
from bwbench.records import read_events
from bwbench.records.cell_identity import identity
from bwbench.records.schema import End, Evaluation, Step
from bwbench.training.loop.process_groups import WorkerEnvironment
from bwbench.training.loop.recorder import Channel
from bwbench.training.loop.virtual_worker import train

STEPS = 28  # more than the longest warm-up and a period
BATCH = 8
LIMIT_S = 100.0
TINY = """
name: tiny
nodes: {nodes}
link: unshaped
model: {model}
compute: {{virtual: {virtual}}}
dataset: digits
batch_size: {batch}
algorithm: {preset}
optimizer: {optimizer}
weight_average: {average}
evaluate: {{every: {every} samples}}
target: {{accuracy: 0.999}}
limit: {{samples: {samples}}}
"""


def tiny(
    preset: str, nodes: int, *, steps: int = STEPS, model: str = "logistic", batch: int = BATCH, average: str = "none"
) -> Cell:
    """A cell of some steps, in which rounds come often and warm-ups are short. The target is never met."""
    samples = steps * batch * nodes
    known = ALGORITHMS.load(PRESETS[preset].algorithm).optimizers
    own = next((name for name in known if name != "sgd"), None)
    optimizer = f"{{{own}: {{lr: 0.001}}}}" if own else "{sgd: {lr: 0.05}}"
    text = TINY.format(
        nodes=nodes,
        preset=preset,
        batch=batch,
        optimizer=optimizer,
        average=average,
        every=samples // 2,
        samples=samples,
        model=model,
        virtual=str(nodes > MAX_NODES).lower(),
    )
    cell = one_cell(text)
    options = cell.config.algorithm.build(ALGORITHMS).for_timing()
    if getattr(options, "period", 0) >= steps:  # not shortened, for rounds that have all of it to arrive
        options = options.model_copy(update={"period": TIMED_PERIOD})
    algorithm = replace(cell.config.algorithm, options=options)
    config = cell.config.model_copy(update={"algorithm": algorithm})
    return replace(cell, id=identity(config), config=config)


def virtual_presets() -> list[str]:
    """All whose nodes may be virtual, and that need more than one."""
    cells = {preset: tiny(preset, 4) for preset in PRESETS if preset != "single"}
    return [preset for preset, cell in cells.items() if needs_workers(cell.config) is None]


def by_workers(cell: Cell, pool: Pool) -> list[Any]:
    """What the ranks of real workers have recorded; raises AssertionError where they did not end."""
    with tempfile.TemporaryDirectory() as folder:
        end = pool.train(cell, LIMIT_S, Path(folder))
        assert end["status"] == "done", end["reason"]
        return recorded(Path(folder), cell.config.nodes)


def by_virtual_nodes(cell: Cell) -> list[Any]:
    """What virtual nodes in this very process have recorded; raises what a rank has raised first."""
    with tempfile.TemporaryDirectory() as folder:
        errors = train(cell, WorkerEnvironment(), Path(folder), Channel(None))
        for error in errors.values():
            raise error
        return recorded(Path(folder), cell.config.nodes)


def recorded(attempt: Path, num_ranks: int) -> list[Any]:
    """All that ranks record and that no clock decides: losses, rates and bytes of each step, metrics, final bits."""
    return [_told(read_events(attempt / f"rank{rank}.jsonl")) for rank in range(num_ranks)]


def _told(events: Sequence[Any]) -> list[Any]:
    steps = [(one.step, one.samples, one.loss, one.lr, one.payload_bytes) for one in events if isinstance(one, Step)]
    found = [
        (one.split, one.step, one.local, one.mean, one.target_met) for one in events if isinstance(one, Evaluation)
    ]
    ends = [
        (one.status, one.reason, one.step, one.payload_bytes, one.replica_sha256)
        for one in events
        if isinstance(one, End)
    ]
    assert len(ends) == 1, "a rank has not ended"
    return [steps, found, ends]
