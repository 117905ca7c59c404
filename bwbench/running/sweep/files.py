"""The experiment files that a sweep is made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bwbench.base.errors import ConfigError, Problem
from bwbench.experiment.config import load_experiment
from bwbench.experiment.config.experiment import Experiment

ENDINGS = (".yaml", ".yml")


def experiment_files(paths: Sequence[Path]) -> list[Path]:
    """Each file once; of a folder its YAML files, by name, without those in folders inside it.

    Raises ConfigError for a folder that has none, or cannot be read; whether a file is there shows when it is read.
    """
    found: dict[Path, Path] = {}
    problems = []
    for path in paths:
        try:
            files = _files_in(path) if path.is_dir() else [path]
        except OSError as error:
            problems.append(Problem(f"the folder {path} cannot be read: {error.strerror}"))
            continue
        if not files:
            problems.append(Problem(f"no experiment files (*.yaml) in the folder {path}"))
        for file in files:
            found.setdefault(file.resolve(), file)
    if problems:
        raise ConfigError(problems)
    return list(found.values())


def load_experiments(files: Sequence[Path], overrides: Sequence[str] = ()) -> list[Experiment]:
    """All of them, in order. Raises ConfigError with the problems of all files, and where two share a name."""
    experiments: list[Experiment] = []
    problems: list[Problem] = []
    for file in files:
        try:
            experiments.append(load_experiment(file, overrides))
        except ConfigError as error:
            problems += error.problems
    names: dict[str, Path] = {}
    for experiment in experiments:
        other = names.setdefault(experiment.name, experiment.file)
        if other is not experiment.file:
            text = f"name: {experiment.name!r} is also the name of {other}; results lie in a folder of that name"
            problems.append(Problem(f"{text}, so rename one", str(experiment.file)))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return experiments


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in ENDINGS and path.is_file())
