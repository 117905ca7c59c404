"""bwbench: on my link, which way of data-parallel training reaches my target accuracy first?

``Link`` and ``emulate`` are loaded when they are first used: the command line starts without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bwbench.network.emulate import emulate
    from bwbench.network.link import Link

__all__ = ["Link", "__version__", "emulate"]
__version__ = "0.1.0"

_WHERE = {"Link": "bwbench.network.link", "emulate": "bwbench.network.emulate"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
