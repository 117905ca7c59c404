"""What of a cell is not bwbench's own: which source it has, and whether cells that are done were trained with that one.

An id counts what a component is called, its options and its ``revision``, and knows nothing of its arithmetic. Whoever
changes that and nothing else is shown old results as done. Records say which source a cell was trained with, so that a
plan can tell.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path

from bwbench.base.errors import RecordError
from bwbench.base.registry import (
    ALGORITHMS,
    COLLECTIVES,
    COMPRESSIONS,
    DATASETS,
    MODELS,
    OPTIMIZERS,
    PARTITIONS,
    Registry,
)
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.records import CellFolder


def sources_of(config: CellConfig) -> dict[str, str | None]:
    """SHA-256 of everything that takes part in a cell and is not bwbench's; None where it cannot be read.

    Of each file under ``plugins:``, by its path; and of each installed package that has a component of the cell, by the
    name that it is imported by: of its one module, or of all its Python files. Imports nothing.
    """
    packages = {registry.package_of(name) for registry, name in _components(config)}
    found = {path: _digest_of_file(Path(path)) for path in config.plugins}
    return found | {package: digest_of_package(package) for package in sorted(filter(None, packages))}


def _components(config: CellConfig) -> Iterator[tuple[Registry, str]]:
    yield ALGORITHMS, config.algorithm.name
    yield COLLECTIVES, config.collective.name
    yield from ((COMPRESSIONS, codec.name) for codec in config.compression)
    yield MODELS, config.model.name
    yield DATASETS, config.dataset.source.name
    yield PARTITIONS, config.dataset.partition.name
    yield OPTIMIZERS, config.optimizer.name


def digest_of_package(name: str) -> str | None:
    """Of the Python files of an installed package or module, which is not imported; None where it is not found."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not spec.submodule_search_locations:
        return None if spec.origin is None else _digest_of_file(Path(spec.origin))
    digest = hashlib.sha256()
    for folder in map(Path, spec.submodule_search_locations):
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{path.relative_to(folder)} {_digest_of_file(path)}\n".encode())
    return digest.hexdigest()


def _digest_of_file(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def outdated(done: Iterable[tuple[CellConfig, Path]]) -> list[str]:
    """A line for each plugin whose source is another one than that which cells that are done were trained with.

    Nothing of cells whose records do not tell: older ones, and published ones.

    Args:
        done: configuration and folder of each.
    """
    known: dict[tuple[object, ...], dict[str, str | None]] = {}  # thousands of cells share a few plugins
    changed: dict[str, int] = {}
    for config, folder in done:
        key = (config.plugins, *((registry.kind, name) for registry, name in _components(config)))
        if key not in known:
            known[key] = {Path(name).name: digest for name, digest in sources_of(config).items()}
        if now := known[key]:
            for name, digest in _recorded(folder).items():
                if now.get(name, digest) != digest:
                    changed[name] = changed.get(name, 0) + 1
    return [
        f"{name} has changed since {count} of the cells that are done {'was' if count == 1 else 'were'} trained: they "
        "are kept, and not run again. If it computes something else now, raise 'revision' in its class"
        for name, count in sorted(changed.items())
    ]


def _recorded(folder: Path) -> dict[str, str | None]:
    """Checksums of what a cell was trained with, by the names of files and packages; none where no record tells."""
    try:
        environment = CellFolder(folder).environment
    except RecordError:
        return {}
    return {} if environment is None else {Path(name).name: sha for name, sha in environment.plugins_sha256.items()}
