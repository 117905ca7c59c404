"""All nodes of a cell in one process: virtual nodes, for trainings of which only what they learn matters.

``python -m bwbench.training.loop.virtual_worker CELL_JSON``. Each rank is a thread with the training loop, the model
and the records that a worker of its own would have; they take turns. The data set is there once.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import torch.distributed as dist

from bwbench.base import registry
from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_USER_INPUT, ConfigError
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.given_cell import given_cell
from bwbench.records import EventWriter
from bwbench.records.schema import JsonObject
from bwbench.training.datasets.dataset import data_folder
from bwbench.training.loop.checkpoints import Checkpoints
from bwbench.training.loop.compute_device import leave_gpus_alone
from bwbench.training.loop.control import ControlPath
from bwbench.training.loop.process_groups import Groups, WorkerEnvironment
from bwbench.training.loop.rank_turns import RankTurns
from bwbench.training.loop.recorder import Channel, Recorder
from bwbench.training.loop.training_loop import TrainingLoop
from bwbench.training.loop.trial_parts import prepare
from bwbench.training.loop.virtual_group import VirtualNetwork
from bwbench.training.loop.worker import flush_subnormal_numbers, leave_compiler_out, leave_process, new_attempt, report


class RankChannel(Channel):
    """What one rank says on the line to the parent that all share: each message in an envelope with its rank.

    All ranks ask together, and the parent answers all of them at once.

    Args:
        meet: of a virtual network.
    """

    def __init__(self, line: Channel, rank: int, network: VirtualNetwork) -> None:
        super().__init__(None)
        self._line, self._rank, self._network, self._num_asked = line, rank, network, 0

    @property
    def is_open(self) -> bool:
        """Whether there is somebody to answer."""
        return self._line.is_open

    def send(self, message: JsonObject) -> None:
        """Send a message of this rank."""
        self._line.send({"rank": self._rank, "said": message})

    def answer(self) -> JsonObject:
        """What the parent answers once all have asked."""
        self._num_asked += 1
        answer: JsonObject = self._network.meet(self._num_asked, self._rank, None, lambda _: self._line.answer())
        return answer


class _RankLogs(io.TextIOBase):
    """Output of whoever runs, into the log of its rank; where there are no logs, and of rank 0, as it was."""

    def __init__(self, plain: TextIO, running: Callable[[], int], attempt: Path | None) -> None:
        self._plain, self._running, self._attempt = plain, running, attempt
        self._logs: dict[int, TextIO] = {}

    def write(self, text: str) -> int:
        """Written and flushed."""
        log, rank = self._plain, self._running()
        if self._attempt is not None and rank > 0:
            if rank not in self._logs:
                self._logs[rank] = open(self._attempt / f"rank{rank}.log", "a", encoding="utf-8")
            log = self._logs[rank]
        log.write(text)
        log.flush()
        return len(text)

    def flush(self) -> None:
        """Nothing is kept."""


@contextlib.contextmanager
def _separate_logs(turns: RankTurns, attempt: Path | None) -> Iterator[None]:
    plain = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_RankLogs(one, lambda: turns.running, attempt) for one in plain)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = plain


def main(arguments: list[str]) -> int:
    """Run all ranks; returns the exit status of a run that could not begin."""
    if len(arguments) != 1:
        print("usage: python -m bwbench.training.loop.virtual_worker CELL_JSON", file=sys.stderr)
        return EXIT_USER_INPUT
    leave_compiler_out()
    gc.freeze()  # torch's own objects, which stay: looking at them again and again takes up to 3 % of a training
    line = Channel.from_environment()
    try:
        cell_file = Path(arguments[0])
        environment = WorkerEnvironment.read(os.environ)
        cell = given_cell(cell_file, os.environ)
        leave_gpus_alone(cell.config)
        attempt = environment.attempt or new_attempt(cell_file.parent, Groups(ControlPath()))
        errors = train(cell, environment, attempt, line)
    except BaseException as error:
        report(error, None, RankChannel(line, 0, VirtualNetwork(RankTurns(1), 1)))
        errors = {0: error}
    first = next(iter(errors.values()), None)
    if first is not None:
        leave_process(EXIT_USER_INPUT if isinstance(first, ConfigError) else EXIT_CELLS_FAILED)
    leave_process(0)
    return 0  # not reached


def train(cell: Cell, environment: WorkerEnvironment, attempt: Path, line: Channel) -> dict[int, BaseException]:
    """Train on all ranks; returns what ended ranks before their time, the first error first. It is recorded.

    Raises ConfigError where data is missing.
    """
    config, size = cell.config, cell.config.nodes
    turns = RankTurns(size, keep_all_random=bool(config.plugins))
    control, data, asking = (VirtualNetwork(turns, size) for _ in range(3))
    controls, datas, store = control.groups(), data.groups(), dist.HashStore()  # type: ignore[attr-defined]
    splits = config.dataset.source.build(registry.DATASETS).load(data_folder())

    def work(rank: int) -> None:
        channel = RankChannel(line, rank, asking)
        recorder: Recorder | None = None
        with contextlib.ExitStack() as resources:
            try:
                groups = Groups(ControlPath())
                if size > 1:
                    groups = Groups(ControlPath(controls[rank], store), datas[rank], store)
                writer = resources.enter_context(contextlib.closing(EventWriter(attempt / f"rank{rank}.jsonl")))
                recorder = Recorder(writer, channel)
                due_s, begun = environment.checkpoint_interval_s, environment.checkpoint
                checkpoints = Checkpoints(attempt, due_s, groups.control, recorder, channel, begun)
                TrainingLoop(prepare(config, groups, splits), recorder, channel, checkpoints).run()
            except BaseException as error:
                report(error, recorder, channel)
                raise

    with _separate_logs(turns, attempt if environment.attempt is not None else None):
        return turns.run(work)


if __name__ == "__main__":
    flush_subnormal_numbers()  # of this process, and not of one that calls main
    sys.exit(main(sys.argv[1:]))
