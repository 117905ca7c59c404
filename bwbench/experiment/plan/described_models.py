"""How large and how fast models are, asked of a process that imports torch, so that this one does not have to."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict

from bwbench import __version__
from bwbench.base.component import Component
from bwbench.base.errors import ConfigError, LaunchError
from bwbench.base.plain_data import JsonObject
from bwbench.base.registry import DATASETS, MODELS, Registry
from bwbench.records import read_json, write_json_atomic

TIME_LIMIT_S = 120.0
MAX_CACHED = 5000
_MEASURED_BY = "processor time"  # to be changed with how the process measures, so that older answers are not used
_COMMAND = (sys.executable, "-m", "bwbench.training.loop.describe")


class RequestContent(TypedDict):
    """A request as the describing process reads it."""

    model: JsonObject
    dataset: JsonObject
    plugins: list[str]
    batch_size: int
    threads: int


class Answer(TypedDict, total=False):
    """What the describing process says to one request: ``error`` alone, or everything of a ``Description``."""

    error: str
    num_parameters: int
    parameter_shapes: list[list[int]]
    compute_s: float
    sample_s: float
    num_validation: int
    num_test: int
    start_s: float


@dataclass(frozen=True)
class ModelRequest:
    """A model on a data set with a batch size.

    Attributes:
        text: the request in canonical JSON.
    """

    text: str

    @classmethod
    def of(
        cls, model: Component, dataset: Component, plugins: tuple[str, ...], batch_size: int, threads: int
    ) -> ModelRequest:
        """Bring the parts into their one form; equal parts give equal requests."""
        content: RequestContent = {
            "model": model.to_json(),
            "dataset": dataset.to_json(),
            "plugins": list(plugins),
            "batch_size": batch_size,
            "threads": threads,
        }
        return cls(json.dumps(content, sort_keys=True))

    @property
    def content(self) -> RequestContent:
        """As the describing process reads it."""
        content: RequestContent = json.loads(self.text)
        return content


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

    @classmethod
    def from_json(cls, data: Answer) -> Description:
        """Read one result of the describing process."""
        shapes = tuple(tuple(map(int, shape)) for shape in data["parameter_shapes"])
        return cls(
            num_parameters=int(data["num_parameters"]),
            parameter_shapes=shapes,
            compute_s=float(data["compute_s"]),
            sample_s=float(data["sample_s"]),
            num_validation=int(data["num_validation"]),
            num_test=int(data["num_test"]),
            start_s=float(data["start_s"]),
        )


def describe(requests: Sequence[ModelRequest]) -> dict[ModelRequest, Description]:
    """A description of each request, from the cache where it is known.

    Raises:
        ConfigError: a model cannot be made; names all that cannot.
        LaunchError: the process failed, or took longer than its time limit.
    """
    cache = cache_file()
    known = _read_cache(cache)
    keys = {request: _cache_key(request) for request in requests}
    missing = [request for request in requests if keys[request] not in known]
    if missing:
        answers = _ask([request.content for request in missing])
        refused = {_refusal(request, answer) for request, answer in zip(missing, answers, strict=True)} - {None}
        if refused:
            raise ConfigError("\n".join(sorted(text for text in refused if text)))
        known |= {keys[request]: answer for request, answer in zip(missing, answers, strict=True)}
        _write_cache(cache, known)
    return {request: Description.from_json(known[keys[request]]) for request in requests}


def cache_file() -> Path | None:
    """Where descriptions are kept: in the user's cache folder; None where there is no such thing."""
    try:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # no home folder
        return None
    return Path(root) / "bwbench" / "describe.json"


def _refusal(request: ModelRequest, answer: Answer) -> str | None:
    if "error" not in answer:
        return None
    content = request.content
    return f"model {content['model']['name']!r} on data set {content['dataset']['name']!r}: {answer['error']}"


def _ask(requests: list[RequestContent]) -> list[Answer]:
    """One process for all requests, so that torch is imported once."""
    try:
        process = subprocess.run(
            _COMMAND, input=json.dumps({"requests": requests}), capture_output=True, text=True, timeout=TIME_LIMIT_S
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
        results: list[Answer] = json.loads(process.stdout)["results"]
        if len(results) != len(requests):
            raise ValueError(f"{len(results)} answers to {len(requests)} requests")
    except (ValueError, KeyError, TypeError) as error:
        last_lines = "\n".join(process.stderr.splitlines()[-5:])
        raise LaunchError(f"{' '.join(_COMMAND)} failed: {error}\n{last_lines}".rstrip()) from None
    return results


def _cache_key(request: ModelRequest) -> str:
    """Everything that an answer depends on: the request, the code that makes the model, versions, the machine."""
    content = request.content
    sources = [Path(path) for path in content["plugins"]]
    sources += [_source_file(MODELS, content["model"]), _source_file(DATASETS, content["dataset"])]
    parts = [request.text, __version__, _torch_version(), platform.node(), platform.machine(), str(os.cpu_count())]
    parts.append(os.environ.get("BWBENCH_DATA", ""))  # reading data that are not there takes no time
    parts.append(_MEASURED_BY)
    digest = hashlib.sha256("\n".join(parts).encode())
    for source in sources:
        try:
            digest.update(source.read_bytes())
        except OSError:
            continue
    return digest.hexdigest()[:32]


def _source_file(registry: Registry, component: JsonObject) -> Path:
    module = sys.modules.get(registry.load(str(component["name"])).__module__)
    return Path(getattr(module, "__file__", None) or "")


def _torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return "none"


def _read_cache(path: Path | None) -> dict[str, Answer]:
    content = read_json(path) if path is not None else None
    known: dict[str, Answer] = content if isinstance(content, dict) else {}
    return {key: answer for key, answer in known.items() if isinstance(answer, dict) and "start_s" in answer}


def _write_cache(path: Path | None, known: dict[str, Answer]) -> None:
    """Keep the newest; a cache that cannot be written is no reason to fail."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(path, dict(list(known.items())[-MAX_CACHED:]))
    except OSError:
        return
