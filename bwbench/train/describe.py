"""Size and speed of models, for the parent, which imports no torch: ``python -m bwbench.train.describe``.

stdin: ``{"requests": [{"model": {…}, "dataset": {…}, "plugins": […], "batch_size": 32, "threads": 1}]}``; stdout, one
result a request: ``{"results": [{"num_parameters", "parameter_shapes", "compute_s"} or {"error": text}]}``.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from bwbench import registry
from bwbench.config.cell import parse_dataset
from bwbench.config.component_parsing import parse_component
from bwbench.data_spec import DataSpec
from bwbench.errors import BwbenchError
from bwbench.models.contract import example_batch
from bwbench.train.evaluate import training_loss

_MAX_STEPS = 9  # a median needs no more
_MAX_TIMING_S = 1.0  # a plan should not wait long for a large model


def describe(request: dict[str, Any]) -> dict[str, Any]:
    """Parameters and seconds of a micro-step; ``{"error": text}`` where the model cannot be made."""
    try:
        for path in request.get("plugins", ()):
            registry.load_plugin(Path(path))
        dataset = parse_dataset(request["dataset"])
        spec = dataset.source.build(registry.DATASETS).spec()
        component = parse_component(request["model"], registry.MODELS)
        torch.manual_seed(0)
        model = component.build(registry.MODELS).build(spec)
        compute_s = time_step(model, spec, request["batch_size"], request.get("threads", 1))
    except ValidationError as error:
        texts = [": ".join([".".join(map(str, detail["loc"])), detail["msg"]]) for detail in error.errors()]
        return {"error": "; ".join(text.removeprefix(": ") for text in texts)}
    except BwbenchError as error:
        return {"error": str(error)}
    except Exception as error:  # a plugin's model may fail in any way, and other requests have a right to their answer
        return {"error": f"{type(error).__name__}: {error}"}
    shapes = [list(parameter.shape) for parameter in model.parameters()]
    return {
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "parameter_shapes": shapes,
        "compute_s": compute_s,
    }


def time_step(model: nn.Module, spec: DataSpec, batch_size: int, threads: int) -> float:
    """Median seconds of forward, backward and optimizer on random input, after one step of warm-up."""
    torch.set_num_threads(threads)
    inputs, targets = example_batch(spec, batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    durations_s: list[float] = []
    while len(durations_s) <= _MAX_STEPS and sum(durations_s) < _MAX_TIMING_S:
        start_s = time.perf_counter()
        optimizer.zero_grad()
        torch.autograd.backward(training_loss(model(inputs), targets))
        optimizer.step()
        durations_s.append(time.perf_counter() - start_s)
    return statistics.median(durations_s[1:] or durations_s)  # one step alone where that took all the time there is


def main() -> None:
    """Answer the requests on stdin; whatever else is printed, by a plugin perhaps, goes to stderr."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = json.load(sys.stdin)["requests"]
    with answer:
        json.dump({"results": [describe(request) for request in requests]}, answer)


if __name__ == "__main__":
    main()
