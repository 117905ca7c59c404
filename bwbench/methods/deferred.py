"""torch and numpy by their usual names, each imported when something of it is first used.

Plans and tables ask components for options, sizes and roles in processes that must not wait seconds for torch. A module
that takes the names from here can be imported there, and reads like any other.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any


def deferred(name: str) -> ModuleType:
    """What stands for a module until something of it is asked for; what was found is kept, and as quick to reach."""
    stand_in = ModuleType(name)

    def attribute(wanted: str) -> Any:
        value = getattr(importlib.import_module(name), wanted)
        if not wanted.startswith("__"):  # what a module says of itself may change while it is being imported
            setattr(stand_in, wanted, value)
        return value

    stand_in.__dict__["__getattr__"] = attribute
    return stand_in


if TYPE_CHECKING:
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch import nn
else:
    np, torch, dist, nn = map(deferred, ("numpy", "torch", "torch.distributed", "torch.nn"))

__all__ = ["dist", "nn", "np", "torch"]
