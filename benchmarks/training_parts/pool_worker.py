"""A worker of the pool: one cell and a folder for events a line on stdin, one line about its end on rank 0's stdout."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from pathlib import Path

from bwbench.experiment.plan.cell import Cell
from bwbench.records import EventWriter
from bwbench.training.loop.process_groups import WorkerEnvironment, connect
from bwbench.training.loop.recorder import Channel, Recorder
from bwbench.training.loop.training_loop import TrainingLoop
from bwbench.training.loop.trial_parts import prepare
from bwbench.training.loop.worker import SWITCH_INTERVAL_S, leave_compiler_out

PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed benchmark takes its workers along
    os.nice(int(os.environ.get("POOL_NICENESS", "0")))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    leave_compiler_out()
    environment = WorkerEnvironment.read(os.environ)
    groups = connect(environment)
    folder = Path(sys.argv[1])
    for line in sys.stdin:
        job = json.loads(line)
        cell = Cell.from_json(job["cell"], plugins=())
        file = Path(job["events"] or folder) / f"rank{environment.rank}.jsonl"
        file.unlink(missing_ok=True)
        writer = EventWriter(file)
        TrainingLoop(prepare(cell.config, groups), Recorder(writer, Channel(None)), Channel(None)).run()
        writer.close()
        gc.collect()  # hooks and models hold one another
        if environment.rank == 0:
            print(json.dumps(summary(file)), flush=True)
        if job["events"] is None:
            file.unlink()
    os._exit(0)  # gloo's teardown aborts now and then


def summary(file: Path) -> dict[str, object]:
    """Evaluations and end of a trial, out of rank 0's events."""
    events = [json.loads(line) for line in file.read_text().splitlines()]
    evaluations = [
        {key: event[key] for key in ("split", "samples", "step", "clock_s", "mean", "target_met")}
        for event in events
        if event["event"] == "eval"
    ]
    end = next(event for event in events if event["event"] == "end")
    kept = ("status", "reason", "step", "samples", "clock_s", "payload_bytes")
    return {**{key: end[key] for key in kept}, "evaluations": evaluations}


if __name__ == "__main__":
    main()
