"""A worker: trains one cell on one node.

``python -m bwbench.training.loop.worker CELL_JSON``; any cell can be run by hand.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # before torch, which takes seconds
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback, as SIGTERM does

import torch
import torch.distributed as dist

from bwbench.base import emulated_time
from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_USER_INPUT, BwbenchError, ConfigError
from bwbench.experiment.plan.given_cell import given_cell
from bwbench.records import EventWriter
from bwbench.training.loop.checkpoints import Checkpoints
from bwbench.training.loop.compute_device import data_backend, device_for, leave_gpus_alone
from bwbench.training.loop.external import ExternalRun, on_own_interfaces
from bwbench.training.loop.process_groups import Groups, WorkerEnvironment, connect
from bwbench.training.loop.recorder import Channel, Recorder, error_event
from bwbench.training.loop.training_loop import TrainingLoop
from bwbench.training.loop.trial_parts import prepare

SWITCH_INTERVAL_S = 1e-3  # a communication thread with a message in hand waits no longer for the interpreter than this
LAST_BARRIER_LIMIT = timedelta(seconds=10)


def main(arguments: list[str]) -> int:
    """Run the worker; returns the exit status of a run that could not begin."""
    if len(arguments) != 1:
        print("usage: python -m bwbench.training.loop.worker CELL_JSON", file=sys.stderr)
        return EXIT_USER_INPUT
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    leave_compiler_out()
    channel = Channel.from_environment()
    recorder: Recorder | None = None
    external: ExternalRun | None = None
    try:
        cell_file = Path(arguments[0])
        environment = WorkerEnvironment.read(os.environ)
        cell = given_cell(cell_file, os.environ)
        if environment.world_size != cell.config.nodes:
            raise ConfigError(
                f"the cell is for {cell.config.nodes} nodes, WORLD_SIZE is {environment.world_size}; start one worker "
                f"a node, with WORLD_SIZE={cell.config.nodes}, RANK, MASTER_ADDR and MASTER_PORT set"
            )
        is_external = cell.config.launcher != "local" and environment.attempt is None
        if is_external:
            environment = on_own_interfaces(environment)
        emulated_time.dilate(cell.config.dilation, cell.config.shrink / cell.config.compute.vector_speed)
        leave_gpus_alone(cell.config)
        device_for(cell.config, environment.rank)  # raises before anybody waits for anybody
        backend = partial(data_backend, cell.config)
        groups = connect(environment, is_shared=is_external, data_backend=backend)
        if is_external:
            external = ExternalRun.begin(cell, cell_file, environment, groups)
            if external is None:  # done already
                leave_process(0)
                return 0
            channel, attempt = external.channel, external.attempt
        else:
            attempt = environment.attempt or new_attempt(cell_file.parent, groups)
        recorder = Recorder(EventWriter(attempt / f"rank{environment.rank}.jsonl"), channel)
        checkpoints = Checkpoints(
            attempt, environment.checkpoint_interval_s, groups.control, recorder, channel, environment.checkpoint
        )
        trial = prepare(cell.config, groups)
        if external is not None:
            external.measure("achieved_before")
        TrainingLoop(trial, recorder, channel, checkpoints, external.look_again if external is not None else None).run()
        if external is not None:
            external.finish()
    except BaseException as error:
        report(error, recorder, channel, external.explain(error) if external is not None else None)
        leave_process(EXIT_USER_INPUT if isinstance(error, ConfigError) else EXIT_CELLS_FAILED)
    if groups.data is not None:  # nobody leaves while a neighbour may still wait for its last bytes
        try:
            dist.group.WORLD.barrier().wait(LAST_BARRIER_LIMIT)  # type: ignore[union-attr]
        except Exception as error:  # the result is on disk
            print(f"the last barrier failed, which changes nothing: {error}", file=sys.stderr)
    leave_process(0)
    return 0  # not reached


def new_attempt(folder: Path, groups: Groups) -> Path:
    """The next free attempt folder beside the cell's file, the same one for all ranks."""
    key = "bwbench/attempt"
    if groups.store is None or groups.control.rank == 0:
        number = 1
        while (folder / f"attempt-{number}").exists():
            number += 1
        attempt = folder / f"attempt-{number}"
        attempt.mkdir()
        if groups.store is not None:
            groups.store.set(key, attempt.name)
        return attempt
    return folder / str(groups.store.get(key).decode())


def report(error: BaseException, recorder: Recorder | None, channel: Channel, message: str | None = None) -> None:
    """Print an error, record it and tell the parent, as far as that can be done.

    Args:
        message: what to say of it in place of its own words.
    """
    if isinstance(error, BwbenchError):
        print(f"error: {error}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    try:
        if recorder is None:
            channel.send(error_event(error, message).to_json())
        else:
            recorder.error(error, message)
    except Exception as another:  # a full disk, most likely; what is printed above is what counts
        print(f"the error could not be recorded: {another}", file=sys.stderr)


def leave_process(status: int) -> None:
    """End without the teardown of torch and gloo, which now and then aborts after a run that went well."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def flush_subnormal_numbers() -> None:
    """Have this thread, and those that it starts, take what is smaller than any normal number (1.2e-38) for 0.

    Momenta of units that have died are halved every few steps until they are that small, and stay so. A step that
    computes with them takes a processor up to twenty times as long (Muon multiplies whole matrices of them), for
    nothing that a weight would notice. Where a processor cannot, nothing changes.
    """
    torch.set_flush_denormal(True)


def leave_compiler_out() -> None:
    """Keep torch's compiler out of this process, which never compiles. Safe to call twice.

    torch's optimizers import ``torch._dynamo`` the first time one is made or takes a step, to tell the compiler what to
    leave alone; that takes as long as importing torch itself. With four workers on two cores it is two to three seconds
    of every cell. The wrappers that import it are taken off here; what they wrap is unchanged. Where a version of torch
    is built otherwise nothing is touched, and starts take longer.
    """
    base: Any = torch.optim.Optimizer
    for name, function in list(vars(base).items()):
        plain = _unwrapped(function, "inner")
        if plain is not function:
            setattr(base, name, plain)
    for optimizer in (torch.optim.SGD, torch.optim.Adam):  # AdamW is an Adam
        plain = _unwrapped(optimizer.step, "_use_grad")
        if plain is not optimizer.step:
            optimizer.step = torch.no_grad()(plain)  # type: ignore[method-assign]  # the other thing that it does


def _unwrapped(function: Any, wrapper: str) -> Any:
    """What ``function`` wraps where it is that wrapper, else ``function`` itself."""
    is_wrapper = getattr(getattr(function, "__code__", None), "co_name", None) == wrapper
    return getattr(function, "__wrapped__", function) if is_wrapper else function


if __name__ == "__main__":
    flush_subnormal_numbers()  # of this process, and not of one that calls main
    sys.exit(main(sys.argv[1:]))
