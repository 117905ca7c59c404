"""Modules under the names that they had in bwbench 0.1: plugins, scripts and workers that use these go on working.

A finder before all others, because a package under its old name would otherwise load the modules below it a second
time. An old name gives the very module that the new one gives, so that a class is the same by either.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

MOVED = {
    "bwbench.algorithms": "bwbench.methods.algorithms",
    "bwbench.algorithms.base": "bwbench.methods.algorithms.algorithm",
    "bwbench.algorithms.low_precision_decentralized": "bwbench.methods.algorithms.decentralized",
    "bwbench.algorithms.no_communication": "bwbench.methods.algorithms.single",
    "bwbench.algorithms.streaming_diloco": "bwbench.methods.algorithms.diloco",
    "bwbench.algorithms.torch_post_local_sgd": "bwbench.methods.algorithms.ddp_exchange",
    "bwbench.cluster": "bwbench.running.cluster",
    "bwbench.collectives": "bwbench.methods.collectives",
    "bwbench.collectives.all_gather": "bwbench.methods.collectives.scatter_gather",
    "bwbench.collectives.base": "bwbench.methods.collectives.collective",
    "bwbench.collectives.gossip_pair": "bwbench.methods.collectives.gossip",
    "bwbench.collectives.meter": "bwbench.methods.collectives.transport",
    "bwbench.collectives.neighbours": "bwbench.methods.collectives.gossip",
    "bwbench.collectives.none": "bwbench.methods.collectives.collective",
    "bwbench.collectives.segments": "bwbench.methods.collectives.transport",
    "bwbench.composed": "bwbench.running.composed",
    "bwbench.compression": "bwbench.methods.compression",
    "bwbench.compression.base": "bwbench.methods.compression.codec",
    "bwbench.compression.bf16": "bwbench.methods.compression.fp16",
    "bwbench.compression.contract": "bwbench.methods.compression.codec_contract",
    "bwbench.compression.int2": "bwbench.methods.compression.sign",
    "bwbench.compression.int4": "bwbench.methods.compression.int8",
    "bwbench.compression.levels": "bwbench.methods.compression.stochastic",
    "bwbench.compression.linear": "bwbench.methods.compression.codec",
    "bwbench.compression.low_rank": "bwbench.methods.compression.powersgd",
    "bwbench.compression.memory": "bwbench.methods.buffers",
    "bwbench.compression.natural": "bwbench.methods.compression.stochastic",
    "bwbench.compression.none": "bwbench.methods.compression.codec",
    "bwbench.compression.qsgd": "bwbench.methods.compression.stochastic",
    "bwbench.compression.rounding": "bwbench.methods.compression.stochastic",
    "bwbench.compression.terngrad": "bwbench.methods.compression.stochastic",
    "bwbench.compression.threshold": "bwbench.methods.compression.sparse",
    "bwbench.compression.top_k": "bwbench.methods.compression.sparse",
    "bwbench.config": "bwbench.experiment.config",
    "bwbench.config.component": "bwbench.base.component",
    "bwbench.data_spec": "bwbench.base.data_spec",
    "bwbench.datasets": "bwbench.training.datasets",
    "bwbench.datasets.base": "bwbench.training.datasets.dataset",
    "bwbench.datasets.cifar10": "bwbench.training.datasets.pictures",
    "bwbench.datasets.contract": "bwbench.training.datasets.dataset_contract",
    "bwbench.datasets.folder": "bwbench.training.datasets.dataset",
    "bwbench.datasets.mnist": "bwbench.training.datasets.pictures",
    "bwbench.errors": "bwbench.base.errors",
    "bwbench.launch": "bwbench.running.launch",
    "bwbench.launch.ssh.facts": "bwbench.running.launch.ssh.host_facts",
    "bwbench.library": "bwbench.training.library",
    "bwbench.library.replicas": "bwbench.training.library.distribution",
    "bwbench.library.user_steps": "bwbench.training.library.handle",
    "bwbench.models": "bwbench.training.models",
    "bwbench.network.addresses": "bwbench.network.namespaces.addresses",
    "bwbench.network.backend": "bwbench.network.namespaces.backend",
    "bwbench.network.link.freeze": "bwbench.network.link.trace_file",
    "bwbench.network.link.outage": "bwbench.network.link.variation",
    "bwbench.network.link.queue": "bwbench.network.link.node_link",
    "bwbench.network.link.trace": "bwbench.network.link.variation",
    "bwbench.network.node_popen": "bwbench.network.emulate",
    "bwbench.network.probe.verify": "bwbench.network.probe.verification",
    "bwbench.models.base": "bwbench.training.models.model",
    "bwbench.models.contract": "bwbench.training.models.model_contract",
    "bwbench.models.logistic": "bwbench.training.models.mlp",
    "bwbench.plan": "bwbench.experiment.plan",
    "bwbench.plan.phases": "bwbench.methods.phases",
    "bwbench.plan.traffic": "bwbench.methods.traffic",
    "bwbench.registry": "bwbench.base.registry",
    "bwbench.runner": "bwbench.running.run_cell",
    "bwbench.sweep": "bwbench.running.sweep",
    "bwbench.train": "bwbench.training.loop",
    "bwbench.tuning": "bwbench.running.tuning",
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


class _OldNames:
    """Finds a module under its old name.

    It is what ``importlib.abc`` calls a MetaPathFinder, and ``_Alias`` an InspectLoader, without their base classes:
    importing those costs every command some milliseconds.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of the module under its new name; None where there is none."""
        name = new_name(fullname)
        try:
            found = _spec_of(name) if name is not None else None
        except ModuleNotFoundError:
            return None
        if name is None or found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, cast("Loader", _Alias(name)), origin=found.origin, is_package=is_package)


class _Alias:
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
        loader: Any = getattr(_spec_of(self._name), "loader", None)
        code: CodeType | None = loader.get_code(self._name) if hasattr(loader, "get_code") else None
        return code


def _spec_of(name: str) -> ModuleSpec | None:
    from importlib.util import find_spec  # only where an old name is used

    return find_spec(name)


def serve() -> None:
    """From now on, old names are found. Safe to call twice."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OldNames())
