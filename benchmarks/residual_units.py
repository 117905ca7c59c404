"""Residuals in units of the gradient, of the update, and none: accuracy at equal samples under a decaying rate.

Simulated ranks in one process: fashion-mnist, an mlp of 25,450 parameters, 4 ranks of 32 samples, 400 steps of plain
SGD, everything in one bucket, the mean of what all ranks decode (all-gather). Two schedules, both to a hundredth: a
cosine, and two steps to a tenth. Learning rates are tuned alike, by the loss on the validation split: powers of two
from the middle outwards as long as the best is outermost, each on two seeds that are not reported. Resumes from the
file that it writes.

Usage: python benchmarks/residual_units.py [--json FILE] [--quick] [--limit-s SECONDS]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bwbench.base.component import Component
from bwbench.base.registry import COMPRESSIONS, DATASETS, MODELS
from bwbench.methods.compression import AbstractCodec, build_codec
from bwbench.results.analysis.student import student_t
from bwbench.training.datasets.dataset import AbstractDataset, data_folder
from bwbench.training.models.mlp import MlpConfig

RANKS, BATCH, STEPS = 4, 32, 400
HIDDEN = (32,)
SEEDS, TUNING_SEEDS = (0, 1, 2, 3, 4), (1000, 1001)
FIRST_RATES = (0.2, 0.4, 0.8)
FLOOR = 0.01  # of the rate at the end, against the first
CODECS: dict[str, tuple[str, dict[str, object]]] = {
    "top-k 1 %": ("top-k", {"ratio": 0.01}),
    "top-k 0.1 %": ("top-k", {"ratio": 0.001}),
    "sign": ("sign", {}),
}
RESIDUALS: dict[str, object] = {"gradient": True, "update": "update", "none": False}
SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": lambda done: FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * done)) / 2,
    "steps": lambda done: 1.0 if done < 0.5 else 0.1 if done < 0.75 else FLOOR,
}


@dataclass(frozen=True)
class Run:
    """One training: what is varied."""

    schedule: str
    codec: str
    residual: str
    lr: float
    seed: int


@dataclass(frozen=True)
class Score:
    """What it came to: accuracy in per cent."""

    validation_loss: float
    loss: float
    accuracy: float


Split = tuple[torch.Tensor, torch.Tensor]


def _dataset() -> AbstractDataset:
    kind = DATASETS.load("fashion-mnist")
    dataset: AbstractDataset = kind(kind.Config())
    return dataset


@cache
def splits() -> tuple[Split, Split, Split]:
    """Training, validation and test as tensors."""
    loaded = _dataset().load(data_folder())
    parts = (loaded.train, loaded.validation, loaded.test)
    train, validation, test = ((torch.from_numpy(part.inputs), torch.from_numpy(part.targets)) for part in parts)
    return train, validation, test


def train(run: Run, num_steps: int) -> Score:
    """Plain SGD on the mean of what the ranks' codecs sent."""
    (inputs, targets), validation, test = splits()
    torch.manual_seed(run.seed)
    model: nn.Module = Component("mlp", MlpConfig(hidden=HIDDEN)).build(MODELS).build(_dataset().spec())
    parameters = list(model.parameters())
    codecs = [_codec(run, rank, [tuple(p.shape) for p in parameters]) for rank in range(RANKS)]
    order = np.random.default_rng(run.seed)
    for step in range(num_steps):
        lr = run.lr * SCHEDULES[run.schedule](step / num_steps)
        drawn = torch.from_numpy(order.integers(len(inputs), size=(RANKS, BATCH)))
        total = torch.zeros(sum(p.numel() for p in parameters))
        for rank, codec in enumerate(codecs):
            loss = nn.functional.cross_entropy(model(inputs[drawn[rank]]), targets[drawn[rank]])
            gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters)])
            codec.rate = lr
            codec.decode_add(codec.encode(gradient), total)
        if not math.isfinite(float(total.sum())):
            return Score(math.inf, math.inf, 0.0)
        with torch.no_grad():
            for parameter, mean in zip(parameters, total.split([p.numel() for p in parameters]), strict=True):
                parameter.sub_(mean.view_as(parameter), alpha=lr / RANKS)
    validation_loss, _ = _scored(model, validation)
    return Score(validation_loss, *_scored(model, test))


def _codec(run: Run, rank: int, shapes: list[tuple[int, ...]]) -> AbstractCodec:
    name, options = CODECS[run.codec]
    config = COMPRESSIONS.load(name).Config(**options, error_feedback=RESIDUALS[run.residual])
    codec = build_codec([Component(name, config)])
    codec.prepare(shapes, rank)
    return codec


@torch.no_grad()
def _scored(model: nn.Module, split: Split) -> tuple[float, float]:
    inputs, targets = split
    found = model(inputs)
    loss = float(nn.functional.cross_entropy(found, targets))
    return loss if math.isfinite(loss) else math.inf, 100 * float((found.argmax(1) == targets).float().mean())


class Study:
    """Trains what is missing, and keeps what was found."""

    def __init__(self, file: Path | None, num_steps: int, limit_s: float) -> None:
        self._file, self._num_steps, self._end_s = file, num_steps, time.monotonic() + limit_s
        known = json.loads(file.read_text()) if file is not None and file.exists() else {"runs": []}
        self._found = {Run(**row["run"]): Score(**row["score"]) for row in known["runs"]}

    def score(self, run: Run) -> Score:
        """Of a training. Raises TimeoutError where there is no time for one more."""
        if run not in self._found:
            if time.monotonic() > self._end_s:
                raise TimeoutError("out of time; the same command goes on from here")
            self._found[run] = train(run, self._num_steps)
            print(run, self._found[run], flush=True)
            self.write({})
        return self._found[run]

    def tuned_lr(self, schedule: str, codec: str, residual: str, first: tuple[float, ...] = FIRST_RATES) -> float:
        """The rate of the lowest mean validation loss on the tuning seeds; no neighbour of it has a lower one."""
        losses: dict[float, float] = {}
        wanted = list(first)
        while wanted:
            for lr in wanted:
                scores = [self.score(Run(schedule, codec, residual, lr, seed)) for seed in TUNING_SEEDS]
                losses[lr] = statistics.fmean(score.validation_loss for score in scores)
            best = min(losses, key=lambda lr: losses[lr])
            wanted = [lr for lr in (best / 2, best * 2) if lr not in losses and len(losses) < 9]
        return best

    def write(self, tables: Mapping[str, object]) -> None:
        """The file with all runs, and tables beside them."""
        if self._file is not None:
            runs = [{"run": asdict(run), "score": asdict(score)} for run, score in self._found.items()]
            self._file.write_text(json.dumps({**tables, "runs": runs}, indent=1) + "\n")


def interval(values: list[float]) -> dict[str, float]:
    """Mean, half-width of the 95 % interval (t), and how many there are."""
    half = student_t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return {"mean": round(statistics.fmean(values), 3), "half": round(half, 3), "n": len(values)}


def rows(study: Study, seeds: tuple[int, ...]) -> Iterator[dict[str, object]]:
    """A row for each schedule, codec and residual; differences are those at the same seed to the unit of gradients."""
    for schedule in SCHEDULES:
        for codec in CODECS:
            of_gradient: list[float] = []
            for residual in RESIDUALS:
                lr = study.tuned_lr(schedule, codec, residual)
                scores = [study.score(Run(schedule, codec, residual, lr, seed)) for seed in seeds]
                accuracies = [score.accuracy for score in scores]
                of_gradient = of_gradient or accuracies
                row = {"schedule": schedule, "codec": codec, "residual": residual, "lr": lr}
                row |= {"accuracy": interval(accuracies), "loss": interval([score.loss for score in scores])}
                pairs = zip(accuracies, of_gradient, strict=True)
                yield row | {"difference": interval([own - other for own, other in pairs])}


def main() -> None:
    """Train, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="20 steps, two seeds")
    parser.add_argument("--limit-s", type=float, default=1200.0, help="begin no training after so many seconds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    study = Study(options.json, 20 if options.quick else STEPS, options.limit_s)
    table = []
    for row in rows(study, SEEDS[:2] if options.quick else SEEDS):
        table.append(row)
        print(row, flush=True)
    study.write({"ranks": RANKS, "batch": BATCH, "steps": STEPS, "rows": table})


if __name__ == "__main__":
    main()
