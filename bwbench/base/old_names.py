"""Modules under the names that they had in bwbench 0.1: plugins, scripts and workers that use these go on working.

A finder before all others, because a package under its old name would otherwise load the modules below it a second
time. An old name gives the very module that the new one gives, so that a class is the same by either.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

MOVED = {
    "bwbench.algorithms": "bwbench.methods.algorithms",
    "bwbench.collectives": "bwbench.methods.collectives",
    "bwbench.compression": "bwbench.methods.compression",
    "bwbench.config": "bwbench.experiment.config",
    "bwbench.config.component": "bwbench.base.component",
    "bwbench.data_spec": "bwbench.base.data_spec",
    "bwbench.datasets": "bwbench.training.datasets",
    "bwbench.errors": "bwbench.base.errors",
    "bwbench.library": "bwbench.training.library",
    "bwbench.lightning": "bwbench.training.library.lightning",
    "bwbench.models": "bwbench.training.models",
    "bwbench.network.addresses": "bwbench.network.namespaces.addresses",
    "bwbench.network.backend": "bwbench.network.namespaces.backend",
    "bwbench.network.link.freeze": "bwbench.network.link.trace_file",
    "bwbench.network.link.outage": "bwbench.network.link.variation",
    "bwbench.network.link.trace": "bwbench.network.link.variation",
    "bwbench.network.probe.verify": "bwbench.network.probe.verification",
    "bwbench.plan": "bwbench.experiment.plan",
    "bwbench.plan.phases": "bwbench.methods.phases",
    "bwbench.plan.traffic": "bwbench.methods.traffic",
    "bwbench.registry": "bwbench.base.registry",
    "bwbench.train": "bwbench.training.loop",
    "bwbench.units": "bwbench.base.units",
}


def new_name(name: str) -> str | None:
    """Where a module of bwbench 0.1 is now; None where that is no old name."""
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        moved = MOVED.get(".".join(parts[:length]))
        if moved is not None:
            return ".".join([moved, *parts[length:]])
    return None


class _OldNames(importlib.abc.MetaPathFinder):
    """Finds a module under its old name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of the module under its new name; None where there is none."""
        name = new_name(fullname)
        try:
            found = importlib.util.find_spec(name) if name is not None else None
        except ModuleNotFoundError:
            return None
        if name is None or found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, _Alias(name), origin=found.origin, is_package=is_package)


class _Alias(importlib.abc.InspectLoader):
    """Loads the module that has another name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it has run. It keeps the specification that it was made by."""
        module.__spec__ = self._spec

    def get_code(self, fullname: str) -> CodeType | None:
        """For ``python -m``."""
        loader = getattr(importlib.util.find_spec(self._name), "loader", None)
        return loader.get_code(self._name) if isinstance(loader, importlib.abc.InspectLoader) else None

    def get_source(self, fullname: str) -> str | None:
        """None: the new name has it."""
        return None


def serve() -> None:
    """From now on, old names are found. Safe to call twice."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OldNames())
