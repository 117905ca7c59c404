"""Size and speed of models, for the parent, which imports no torch: ``python -m bwbench.training.loop.describe``.

stdin: ``{"requests": [{"model": {…}, "dataset": {…}, "plugins": […], "batch_size": 32, "threads": 1}]}``; stdout, one
result a request: ``{"results": [{"num_parameters", "parameter_shapes", "compute_s", …} or {"error": text}]}``; what the
other keys mean stands at ``Description`` in plan/described_models.py.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import torch
from pydantic import ValidationError
from torch import nn
from typing_extensions import NotRequired

from bwbench.base import registry
from bwbench.base.data_spec import DataSpec
from bwbench.base.errors import BwbenchError
from bwbench.base.plain_data import JsonObject
from bwbench.experiment.config.cell_config import parse_dataset
from bwbench.experiment.config.component_parsing import parse_component
from bwbench.training.datasets.dataset import AbstractDataset, data_folder
from bwbench.training.loop.evaluation import EVALUATION_BATCH, training_loss
from bwbench.training.models.model_contract import example_batch

_MAX_STEPS = 9  # a median needs no more
_MAX_TIMING_S = 1.0  # a plan should not wait long for a large model
_USUAL_SIZES = (5000, 10_000)  # validation and test split, where the data have not been fetched: as large as most


class ModelRequest(TypedDict):
    """What is asked about a model: it, its data set and how it is trained, as a cell's configuration has them.

    Of the optimizer the name alone, where its step takes its time; it has its default options then.
    """

    model: JsonObject
    dataset: JsonObject
    plugins: list[str]
    batch_size: int
    threads: int
    optimizer: NotRequired[str]


def describe(request: ModelRequest, imported_s: float = 0.0) -> JsonObject:
    """Parameters, and how long things take; ``{"error": text}`` where the model cannot be made.

    Args:
        imported_s: what this process has taken of the processor until it could begin.
    """
    try:
        for path in request["plugins"]:
            registry.load_plugin(Path(path))
        dataset = parse_dataset(request["dataset"])
        source = dataset.source.build(registry.DATASETS)
        spec = source.spec()
        component = parse_component(request["model"], registry.MODELS)
        torch.manual_seed(0)
        model = component.build(registry.MODELS).build(spec)
        compute_s = time_step(model, spec, request["batch_size"], request["threads"], request.get("optimizer"))
        sample_s = time_evaluation(model, spec)
        load_s, num_validation, num_test = load(source, json.dumps(dataset.source.to_json(), sort_keys=True))
    except ValidationError as error:
        texts = [": ".join([".".join(map(str, detail["loc"])), detail["msg"]]) for detail in error.errors()]
        return {"error": "; ".join(text.removeprefix(": ") for text in texts)}
    except BwbenchError as error:
        return {"error": str(error)}
    except Exception as error:  # a plugin's model may fail in any way, and other requests have a right to their answer
        return {"error": f"{type(error).__name__}: {error}"}
    return {
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "parameter_shapes": [list(parameter.shape) for parameter in model.parameters()],
        "compute_s": compute_s,
        "sample_s": sample_s,
        "num_validation": num_validation,
        "num_test": num_test,
        "start_s": imported_s + load_s,
    }


_loaded: dict[str, tuple[float, int, int]] = {}


def load(source: AbstractDataset, key: str) -> tuple[float, int, int]:
    """What a data set takes of the processor to read, in seconds, and the samples of its validation and test splits;
    found once in a process for each ``key``.

    Data that are not there, or damaged, are no reason not to describe a model.
    """
    if key not in _loaded:
        begin_s = time.process_time()
        try:
            splits = source.load(data_folder())
            sizes = len(splits.validation), len(splits.test)
        except BwbenchError:
            sizes = _USUAL_SIZES
        _loaded[key] = (time.process_time() - begin_s, *sizes)
    return _loaded[key]


def time_evaluation(model: nn.Module, spec: DataSpec) -> float:
    """Seconds to evaluate one sample, in batches as the workers take them; the model stays in training mode."""
    inputs, targets = example_batch(spec, EVALUATION_BATCH)

    def evaluate() -> None:
        with torch.no_grad():
            training_loss(model(inputs), targets)

    model.eval()
    duration_s = _median_s(evaluate)
    model.train()
    return duration_s / EVALUATION_BATCH


def time_step(
    model: nn.Module, spec: DataSpec, batch_size: int, threads: int, optimizer_name: str | None = None
) -> float:
    """Median seconds of forward, backward and optimizer on random input, after one step of warm-up."""
    torch.set_num_threads(threads)
    inputs, targets = example_batch(spec, batch_size)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    if optimizer_name is not None:
        kind = registry.OPTIMIZERS.load(optimizer_name)
        optimizer = kind(kind.Config()).build_for(model)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(training_loss(model(inputs), targets))
        optimizer.step()

    return _median_s(step)


def _median_s(work: Callable[[], None]) -> float:
    # What a thread takes of its processor does not depend on who else is busy now, which nobody will be later on.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    durations_s: list[float] = []
    begin_s = time.perf_counter()
    while len(durations_s) <= _MAX_STEPS and time.perf_counter() - begin_s < _MAX_TIMING_S:
        start_s = clock()
        work()
        durations_s.append(clock() - start_s)
    return statistics.median(durations_s[1:] or durations_s)  # one alone where that took all the time there is


def main() -> None:
    """Answer the requests on stdin; whatever else is printed, by a plugin perhaps, goes to stderr."""
    imported_s = time.process_time()
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = json.load(sys.stdin)["requests"]
    with answer:
        json.dump({"results": [describe(request, imported_s) for request in requests]}, answer)


if __name__ == "__main__":
    main()
