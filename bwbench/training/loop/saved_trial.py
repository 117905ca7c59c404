"""Everything that the training of one rank depends on, as one dict: what a checkpoint holds.

Training that goes on from it takes the same steps, to the bit, as one that was never interrupted; but for algorithms
whose results depend on when a thread gets its turn (``async``, ``overlap: auto``, hivemind).
"""

from __future__ import annotations

from typing import Any

from bwbench.experiment.config import CellConfig
from bwbench.methods.memory import load_saved_state, saved_state
from bwbench.training.loop.feed import BatchFeed
from bwbench.training.loop.progress import Progress
from bwbench.training.loop.replica import ReplicaSnapshot
from bwbench.training.loop.trial import Trial


def save_trial(trial: Trial, feed: BatchFeed, progress: Progress, clock_s: float) -> dict[str, Any]:
    """Model, optimizer, random state, what the algorithm remembers, place in the data, counters and clock.

    Copies, in types that ``torch.load(..., weights_only=True)`` reads; the algorithm is drained.
    """
    control = trial.groups.control
    return {
        "replica": vars(ReplicaSnapshot.take(trial.model, trial.optimizer)),
        "method": saved_state(trial.method, control.rank, control.size, _method(trial.config)),
        "feed": feed.state_dict(),
        "progress": progress.state_dict(),
        "clock_s": clock_s,
    }


def restore_trial(state: dict[str, Any], trial: Trial, feed: BatchFeed, progress: Progress) -> float:
    """Put everything back, whatever the warm-up has left; returns the training clock in seconds.

    Raises ValueError where the state is another rank's, or of another method or number of ranks.
    """
    control = trial.groups.control
    ReplicaSnapshot(**state["replica"]).restore(trial.model, trial.optimizer)
    load_saved_state(trial.method, state["method"], control.rank, control.size, _method(trial.config))
    feed.load_state_dict(state["feed"])
    progress.load_state_dict(state["progress"], state["clock_s"])
    return float(state["clock_s"])


def _method(config: CellConfig) -> dict[str, Any]:
    return {
        "algorithm": config.algorithm.to_json(),
        "collective": config.collective.to_json(),
        "compression": [codec.to_json() for codec in config.compression],
    }
