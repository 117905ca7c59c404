"""A first experiment: what is asked, what stands for the rest, and the file that comes of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from bwbench.base.data_spec import NOTHING
from bwbench.base.errors import ConfigError, Problem
from bwbench.base.examples import example_file
from bwbench.base.explain import nearest
from bwbench.base.registry import DATASETS, MODELS
from bwbench.base.units import BANDWIDTH, DURATION
from bwbench.cli.init.templates_of import rendered
from bwbench.network.link.link import Link
from bwbench.network.link.named_links import named_links

if TYPE_CHECKING:
    from bwbench.experiment.config.experiment import Experiment

MOST_NODES = 250  # as many as have an address
MEDIA = ("switched", "shared")


@dataclass(frozen=True)
class Answers:
    """What options have said; None is asked for, or takes its default."""

    nodes: int | None = None
    link: str | None = None
    latency: str | None = None
    medium: str | None = None
    data: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class _Workload:
    """What fits a data set: values that train in minutes on two processors, as they stand in YAML."""

    model: str = "mlp"
    lr: str = "0.05"
    optimizer: str = "sgd: {{lr: {lr}, momentum: 0.9}}"
    step_time: str = "50 ms"
    every: str = "640 samples"
    target: str = "accuracy: 0.9"
    limit: str = "40000"


_WORKLOADS = {
    "digits": _Workload("{name: cnn, width: 20, hidden: 0}", every="128 samples", target="accuracy: 0.93"),
    "mnist": _Workload("cnn", step_time="40 ms", every="2000 samples", target="accuracy: 0.97", limit="120000"),
    "fashion-mnist": _Workload("cnn", step_time="40 ms", every="2000 samples", target="accuracy: 0.85", limit="120000"),
    "cifar10": _Workload("resnet8", step_time="250 ms", every="4000 samples", target="accuracy: 0.4", limit="80000"),
    "tinyshakespeare": _Workload(
        "char-transformer", "0.003", "adamw: {{lr: {lr}}}", "100 ms", "2000 samples", "loss: 2.2", "60000"
    ),
}
_Parsed = TypeVar("_Parsed")


def text_of(name: str, given: Answers, *, asking: bool) -> str:
    """The experiment's file.

    Args:
        asking: what options leave open is asked on the terminal, again after an answer that cannot be.

    Raises ConfigError for a value that cannot be.
    """
    _check_name(name)

    def value(said: str | None, parse: Callable[[str], _Parsed], question: str, default: str) -> _Parsed:
        if said is not None or not asking:
            return parse(default if said is None else said)
        while True:
            answer: str = typer.prompt(question, default=default, err=True)
            try:
                return parse(answer.strip())
            except ConfigError as error:
                typer.echo(f"  {error}", err=True)

    nodes = value(None if given.nodes is None else str(given.nodes), _nodes, "How many nodes train together?", "4")
    question = "Their link: a bandwidth, or a name ('bwbench link presets' lists them)"
    bandwidth, preset = value(given.link, _link, question, "10 Mbit/s")
    for option, said in (("latency", given.latency), ("medium", given.medium)):
        if preset is not None and said is not None:
            raise ConfigError(f"init: --{option} goes with a bandwidth; the link {preset!r} has its own")
    latency = None if preset else value(given.latency, _latency, "How long does a packet take, one way?", "5 ms")
    question = "Has each node a link of its own (switched), or do all share one WiFi (shared)?"
    medium = None if preset else value(given.medium, _medium, question, MEDIA[0])
    shaped = f"bandwidth: {_scalar(bandwidth)}, latency: {_scalar(str(latency))}, medium: {medium}"
    data = value(given.data, _dataset, f"Data set: {', '.join(_data_sets())}", "digits")
    workload = _WORKLOADS.get(data, _Workload())
    model = value(given.model, _model, f"Model: {', '.join(_models())}", _name_in(workload.model))
    return rendered(
        "experiment/experiment.yaml",
        name=_scalar(name),
        nodes=nodes,
        link=f"preset: {_scalar(preset)}" if preset else shaped,
        preset=preset,
        data=_scalar(data),
        model=workload.model if model == _name_in(workload.model) else _scalar(model),
        optimizer=workload.optimizer.format(lr=workload.lr),
        workload=workload,
    )


def copied(example: str, name: str) -> str:
    """The file of an example, called ``name``; raises ConfigError where there is no such example."""
    _check_name(name)
    text = example_file(example).read_text(encoding="utf-8")
    return re.sub(r"^name: .*$", f"name: {_scalar(name)}", text, count=1, flags=re.MULTILINE)


def write(file: Path, text: str) -> Experiment:
    """Write the file and check it; what came of it.

    Raises ConfigError, with nothing written, where it is there already, cannot be made, or makes no experiment.
    """
    from bwbench.experiment.config.load import load_experiment

    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise ConfigError(f"init: {file} is there already, and is left as it is; give another name") from None
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"init: there is no folder {file.parent} to write {file.name} into; make it first") from None
    try:
        return load_experiment(file)
    except ConfigError as error:
        file.unlink()
        raise ConfigError([Problem(f"init: {problem.message}") for problem in error.problems]) from None


def next_steps(file: Path, experiment: Experiment) -> list[str]:
    """What to do with a file that was written, as commands."""
    from bwbench.training.datasets.dataset import data_folder

    shown = shlex.quote(str(file))
    sources = dict.fromkeys(point.config.dataset.source.name for point in experiment.points)
    missing = [name for name in sources if _is_missing(name, data_folder())]
    lines = [f"bwbench data fetch {' '.join(missing)}"] if missing else []
    lines += [
        f"bwbench plan {shown}    # {len(experiment.points) * experiment.repeats} trainings, and how long they take",
        f"bwbench run {shown}     # after an interruption the same command goes on",
        f"bwbench plot results/{experiment.name}",
    ]
    return ["Next:", *(f"  {line}" for line in lines)]


def _is_missing(dataset: str, folder: Path) -> bool:
    dataset_class = DATASETS.load(dataset)
    return bool(dataset_class.files) and dataset_class(dataset_class.Config()).missing(folder) is not None


def _check_name(name: str) -> None:
    """Raise ConfigError where a name is none of a file, before anything is asked."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name):
        raise ConfigError(
            f"init: {name!r} is no name for an experiment; allowed: letters, digits, '.', '_' and '-', at most 100"
        )


def _nodes(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= MOST_NODES:
        raise ConfigError(f"nodes: {text!r} is not a number from 2 to {MOST_NODES}")
    return int(text)


def _link(text: str) -> tuple[str, str | None]:
    """Bandwidth, and the name of a link where it is one."""
    names = named_links(Link)
    if text in names or ":" in text:
        return "", text
    try:
        BANDWIDTH.parse(text)
    except ValueError as error:
        if text[:1].isdigit():
            raise ConfigError(f"link: {error}") from None
        text = f"link: {text!r} is neither a link's name nor a bandwidth like '10 Mbit/s'.{nearest(text, names)}"
        raise ConfigError(f"{text} 'bwbench link presets' lists all names") from None
    return text, None


def _latency(text: str) -> str:
    try:
        DURATION.parse(text)
    except ValueError as error:
        raise ConfigError(f"latency: {error}") from None
    return text


def _medium(text: str) -> str:
    if text not in MEDIA:
        raise ConfigError(f"medium: {text!r} is neither 'switched' (a link for each node) nor 'shared' (one WiFi)")
    return text


def _data_sets() -> list[str]:
    """Those that there is something to learn from."""
    return [name for name in DATASETS.names() if DATASETS.load(name).metrics]


def _models() -> list[str]:
    """Those that learn something."""
    return [name for name in MODELS.names() if NOTHING not in MODELS.load(name).tasks]


def _dataset(text: str) -> str:
    if text not in _data_sets():
        raise ConfigError(DATASETS.unknown(text))
    return text


def _model(text: str) -> str:
    if text not in MODELS:
        raise ConfigError(MODELS.unknown(text))
    return text


def _scalar(text: str) -> str:
    """``text`` as YAML has it inside of braces: in quotes where it would be something else without them."""
    import yaml

    quoted: str = yaml.safe_dump([text], default_flow_style=True, allow_unicode=True, width=1000)
    return quoted.strip()[1:-1]


def _name_in(component: str) -> str:
    """The name in ``cnn`` or ``{name: cnn, width: 20}``."""
    found = re.match(r"\{name: ([\w-]+)", component)
    return found[1] if found else component
