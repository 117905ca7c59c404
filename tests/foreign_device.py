"""A device that is none: host memory with a mark, which nothing of the host's may touch, for machines without a GPU.

Inside of ``foreign()`` tensors that were made from marked ones are marked. What a GPU refuses is refused: arithmetic
with tensors of both sides, sockets and arrays of numpy. ``copy_`` alone goes from one side to the other, and waits: the
stand-in has no marks, so that nobody could tell when a copy that does not wait is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bwbench.methods.devices import Device, Mark, standing_in

_COPIES = ("aten::copy_",)


def is_foreign(tensor: torch.Tensor) -> bool:
    return bool(getattr(tensor.untyped_storage(), "foreign", False))


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor on the other side."""
    copy = tensor.detach().clone()
    copy.untyped_storage().foreign = True  # type: ignore[attr-defined]  # torch keeps a storage's object with it
    return copy


def move(model: nn.Module) -> nn.Module:
    """As ``model.to(device)``: parameters stay the objects that they are."""
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data = moved(tensor.data)
    return model


class _Foreigners(TorchDispatchMode):
    """Marks what is made of marked tensors, and refuses what a device would."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        foreign = [tensor for tensor in given if is_foreign(tensor)]
        if not foreign:
            return func(*args, **kwargs)
        name = func._schema.name
        strangers = [tensor for tensor in given if tensor.dim() > 0 and not is_foreign(tensor)]
        if strangers and name not in _COPIES:
            raise RuntimeError(f"{name} with tensors of the host and of the device: {[tuple(t.shape) for t in given]}")
        if name in _COPIES and (kwargs.get("non_blocking") or args[2:] == (True,)):
            raise RuntimeError("a copy that does not wait, with a device that has no marks")
        if name.startswith("c10d::"):
            raise RuntimeError(f"{name} with memory of the device")
        result = func(*args, **kwargs)
        if name not in _COPIES:
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    leaf.untyped_storage().foreign = True  # type: ignore[attr-defined]
        return result


class ForeignDevice(Device):
    """Counts the host memory that was lent for copies, so that a test can tell that something was copied."""

    elsewhere = True

    def __init__(self) -> None:
        self.num_lent = 0

    @property
    def name(self) -> str:
        return "stand-in"

    def host_memory(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        self.num_lent += 1
        memory = torch.empty(tuple(shape), dtype=dtype)
        return memory.fill_(torch.nan if dtype.is_floating_point else 1)  # whoever reads it too early notices

    @contextmanager
    def beside(self, mark: Mark, *, finish: bool = True) -> Iterator[None]:
        with _Foreigners():  # which torch keeps by thread
            yield


_device = ForeignDevice()


@contextmanager
def stand_in() -> Iterator[ForeignDevice]:
    """Marked memory counts as another device's, in all threads."""
    with standing_in(lambda tensor: _device if is_foreign(tensor) else None):
        yield _device


def foreign() -> TorchDispatchMode:
    """For the thread of each rank: its tensors are marked and refused as on a device."""
    return _Foreigners()
