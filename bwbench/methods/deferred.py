"""torch and numpy by their usual names, each imported when something of it is first used.

Plans and tables ask components for options, sizes and roles in processes that must not wait seconds for torch. A module
that takes the names from here can be imported there, and reads like any other.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any


class Deferred(ModuleType):
    """Stands for a module until an attribute of it is asked for, and hands that on; attributes are kept here then."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        if not name.startswith("__"):  # what a module says of itself may change while it is being imported
            setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch import nn
else:
    np, torch, dist, nn = map(Deferred, ("numpy", "torch", "torch.distributed", "torch.nn"))

__all__ = ["dist", "nn", "np", "torch"]
