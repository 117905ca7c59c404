"""bwbench: on my link, which way of data-parallel training reaches my target accuracy first?

What stands in ``__all__`` is loaded when it is first used: the command line starts without it.
"""

from __future__ import annotations

import sys

# `python -m bwbench` has the working directory first: files of the user, whatever their names (base/start_module.py).
# Until the module is found argv is ["-m", …]; a package of the user's own that imports this one keeps its path.
if sys.argv[:1] == ["-m"] and not getattr(sys.flags, "safe_path", False):
    if any(f"-m bwbench{end}" in f"{' '.join(sys.orig_argv)} " for end in " ."):
        sys.path.pop(0)

import importlib
from typing import TYPE_CHECKING, Any

from bwbench.base import old_names

if TYPE_CHECKING:
    from bwbench.base.errors import ConfigError
    from bwbench.network.emulate import emulate
    from bwbench.network.link import Link
    from bwbench.study import Study, load, run
    from bwbench.training.library.balanced_sampler import LoadBalancedSampler
    from bwbench.training.library.distribution import distribute
    from bwbench.training.library.handle import Distributed
    from bwbench.training.loop.muon import Muon

__all__ = [
    "ConfigError",
    "Distributed",
    "Link",
    "LoadBalancedSampler",
    "Muon",
    "Study",
    "__version__",
    "distribute",
    "emulate",
    "load",
    "run",
]
__version__ = "0.1.0"

old_names.serve()

_WHERE = {
    "ConfigError": "bwbench.base.errors",
    "Distributed": "bwbench.training.library.handle",
    "Link": "bwbench.network.link",
    "LoadBalancedSampler": "bwbench.training.library.balanced_sampler",
    "Muon": "bwbench.training.loop.muon",
    "Study": "bwbench.study",
    "distribute": "bwbench.training.library.distribution",
    "emulate": "bwbench.network.emulate",
    "load": "bwbench.study",
    "run": "bwbench.study",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
