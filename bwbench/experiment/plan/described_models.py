"""How large and how fast models are, asked of a process that imports torch, so that this one does not have to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from bwbench import __version__
from bwbench.base.errors import ConfigError, LaunchError
from bwbench.base.model_shapes import ELEMENT_BYTES, ModelShapes
from bwbench.base.ownership import owned
from bwbench.base.plain_data import JsonObject
from bwbench.base.registry import ALGORITHMS, COLLECTIVES, DATASETS, MODELS, OPTIMIZERS, Registry
from bwbench.base.start_module import module_command
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.records import read_json, write_json_atomic
from bwbench.records.environment import versions

TIME_LIMIT_S = 120.0
WRITTEN_BYTES_PER_S = 2e9  # of gradients that nobody computes, by one processor of two that share their memory's speed
START_S = (
    2.0  # of one processor, for a worker to import torch: measured for models that are asked, alike for all others
)
MAX_CACHED = 5000
_MEASURED_BY = "processor time"  # to be changed with how the process measures, so that older answers are not used
_COMMAND = tuple(module_command("bwbench.training.loop.describe"))


@dataclass(frozen=True)
class Description:
    """What a model is.

    Attributes:
        num_parameters: values that are trained.
        parameter_shapes: shape of each parameter tensor, in the model's order.
        compute_s: seconds of forward, backward and optimizer for one batch, measured on this machine.
        sample_s: seconds to evaluate one sample, likewise.
        num_validation, num_test: samples of these splits.
        start_s: what a worker takes of one processor until it can begin: imports, and reading the data.
    """

    num_parameters: int
    parameter_shapes: tuple[tuple[int, ...], ...]
    compute_s: float
    sample_s: float = 0.0
    num_validation: int = 0
    num_test: int = 0
    start_s: float = 0.0


_DESCRIPTION = TypeAdapter(Description)


def describe(configs: Sequence[CellConfig]) -> list[Description]:
    """The model of each cell on its data set with its batch size, from the cache where it is known.

    Raises:
        ConfigError: a model cannot be made; names all that cannot.
        LaunchError: the process failed, or took longer than its time limit.
    """
    found = {index: _of_shapes(config, model) for index, config in enumerate(configs) if (model := config.shapes)}
    learning = iter(_describe_learning([config for index, config in enumerate(configs) if index not in found]))
    return [found[index] if index in found else next(learning) for index in range(len(configs))]


def _of_shapes(config: CellConfig, model: ModelShapes) -> Description:
    """A model that computes nothing: what it takes is declared; what this machine does for it is writing gradients,
    which slow motion does not lengthen, and which nobody asks for of one node by itself.
    """
    algorithm = config.algorithm.build(ALGORITHMS)
    unseen = not algorithm.sends and algorithm.takes_gradients_as_sent(config.collective.build(COLLECTIVES))
    write_s = 0.0 if unseen else ELEMENT_BYTES * model.num_parameters / config.shrink / WRITTEN_BYTES_PER_S
    shapes, compute_s = model.parameter_shapes, write_s / config.accumulate / max(1.0, config.dilation)
    return Description(model.num_parameters, shapes, compute_s, start_s=START_S)


def _describe_learning(configs: Sequence[CellConfig]) -> list[Description]:
    """Those that are to be asked."""
    if not configs:
        return []
    cache = _cache_file()
    cached = read_json(cache) if cache is not None else None
    entries = cached.items() if isinstance(cached, dict) else ()
    known = {key: answer for key, answer in entries if isinstance(answer, dict) and "start_s" in answer}
    requests = [json.dumps(_request(config), sort_keys=True) for config in configs]
    keys = {request: _cache_key(request) for request in dict.fromkeys(requests)}
    missing = [request for request, key in keys.items() if key not in known]
    if missing:
        asked = [json.loads(request) for request in missing]
        answers = _ask(asked)
        refused = {
            f"model {about['model']['name']!r} on data set {about['dataset']['name']!r}: {answer['error']}"
            for about, answer in zip(asked, answers, strict=True)
            if "error" in answer
        }
        if refused:
            raise ConfigError("\n".join(sorted(refused)))
        known |= {keys[request]: answer for request, answer in zip(missing, answers, strict=True)}
        if cache is not None:
            with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to fail
                cache.parent.mkdir(parents=True, exist_ok=True)
                write_json_atomic(cache, dict(list(known.items())[-MAX_CACHED:]))  # the newest
    return [_DESCRIPTION.validate_python(known[keys[request]]) for request in requests]


def _request(config: CellConfig) -> JsonObject:
    """What the describing process is asked about a cell; equal for cells that have the same model.

    The optimizer is named where its step takes its time; that of all others is as long as one of SGD.
    """
    timed = getattr(OPTIMIZERS.load(config.optimizer.name), "takes_its_time", False)
    return {
        "model": config.model.to_json(),
        "dataset": config.dataset.source.to_json(),
        "plugins": list(config.plugins),
        "batch_size": config.batch_size,
        "threads": config.compute.threads,
        **({"optimizer": config.optimizer.name} if timed else {}),
    }


def _cache_file() -> Path | None:
    """Where descriptions are kept: in the user's cache folder; None where there is no such thing."""
    try:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # no home folder
        return None
    return Path(root) / "bwbench" / "describe.json"


def _ask(requests: list[JsonObject]) -> list[JsonObject]:
    """What the describing process says to each, ``error`` alone or all of a ``Description``; one process for all."""
    try:
        process = subprocess.run(
            _COMMAND,
            input=json.dumps({"requests": requests}),
            env=owned(),
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"describing {len(requests)} model(s) took longer than {TIME_LIMIT_S:g} s; "
            "is the machine very busy, or a model very large? Try again, or try a smaller model"
        ) from None
    except OSError as error:
        raise LaunchError(f"cannot start {' '.join(_COMMAND)}: {error.strerror}") from error
    try:
        if process.returncode != 0:
            raise ValueError(f"exit status {process.returncode}")
        results: list[JsonObject] = json.loads(process.stdout)["results"]
        if len(results) != len(requests):
            raise ValueError(f"{len(results)} answers to {len(requests)} requests")
    except (ValueError, KeyError, TypeError) as error:
        last_lines = "\n".join(process.stderr.splitlines()[-5:])
        raise LaunchError(f"{' '.join(_COMMAND)} failed: {error}\n{last_lines}".rstrip()) from None
    return results


def _cache_key(request: str) -> str:
    """Everything that an answer depends on: the request, the code that makes the model, versions, the machine."""
    content = json.loads(request)
    sources = [Path(path) for path in content["plugins"]]
    sources += [_source_file(MODELS, content["model"]), _source_file(DATASETS, content["dataset"])]
    parts = [request, __version__, versions().get("torch", "none")]
    parts += [platform.node(), platform.machine(), str(os.cpu_count())]
    parts += [os.environ.get("BWBENCH_DATA", ""), _MEASURED_BY]  # reading data that are not there takes no time
    digest = hashlib.sha256("\n".join(parts).encode())
    for source in sources:
        with contextlib.suppress(OSError):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def _source_file(registry: Registry, component: JsonObject) -> Path:
    module = sys.modules.get(registry.load(str(component["name"])).__module__)
    return Path(getattr(module, "__file__", None) or "")
