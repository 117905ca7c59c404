"""What tensors lie on, and when it has done what it was told: the order between computing and copying beside it.

A GPU is told things and does them later, one queue (a *stream*) after the other's marks. Whoever works beside computing
waits for two things: that a device has produced what is copied (``Device.mark`` where it was told to, ``beside`` where
somebody else goes on from there), and that a copy is over before the host reads it (``Device.finish``).
On the host all of this is nothing: what was told is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

from bwbench.methods.deferred import torch

DIRECT = ("cpu", "cuda")  # kinds of device on which methods work; elsewhere gradients alone are copied to the host
_FIRST = -1  # priority of a stream: small work on a bucket is not to wait for the layers of a whole backward pass


class Mark:
    """A place in the queue of a device: all that one thread had told it by then. Here: nothing is pending."""

    def wait(self) -> None:
        """What this thread tells the device from now on is done after the mark. Does not wait itself."""

    def reach(self) -> None:
        """Wait until the device is there."""

    def reached(self) -> bool:
        """Whether it is."""
        return True


DONE = Mark()


class Device:
    """The host's own memory: everything is done when it returns.

    Attributes:
        elsewhere: sockets, codecs and numpy cannot reach it.
        copies_beside: a copy may be under way when it returns, because ``mark`` and ``finish`` tell when it is over.
    """

    elsewhere: ClassVar[bool] = False
    copies_beside: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """For records."""
        return "cpu"

    def host_memory(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Memory without content on the host, which copies to and from this device are fastest with."""
        return torch.empty(tuple(shape), dtype=dtype)

    def mark(self) -> Mark:
        """Behind all that this thread has told the device so far."""
        return DONE

    @contextmanager
    def beside(self, mark: Mark, *, finish: bool = True) -> Iterator[None]:
        """What is told inside has a queue of this thread's own, behind ``mark``; all of it is done at the end.

        Whoever then tells the device something else, from any thread that has seen the end, comes after it.

        Args:
            finish: False leaves it under way: set a mark inside, and wait for that.
        """
        yield

    def finish(self) -> None:
        """Wait until what this thread has told the device is done."""


class _Accelerator(Device):
    """A device of a kind that nobody has tried here: copies wait for themselves, and nothing runs beside anything."""

    elsewhere = True

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """As torch calls its kind."""
        return self._name


class _CudaMark(Mark):
    def __init__(self, event: Any, index: int) -> None:
        self._event, self._index = event, index

    def wait(self) -> None:
        torch.cuda.current_stream(self._index).wait_event(self._event)

    def reach(self) -> None:
        self._event.synchronize()

    def reached(self) -> bool:
        return bool(self._event.query())


class CudaDevice(Device):
    """One GPU. Threads that work beside computing have a stream each."""

    elsewhere = True
    copies_beside = True

    def __init__(self, index: int) -> None:
        self.index = index
        self._own = threading.local()

    @property
    def name(self) -> str:
        """The maker's."""
        return str(torch.cuda.get_device_name(self.index))

    def host_memory(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Pinned: the GPU copies by itself. Torch keeps such memory, and gives it out anew once copies are done."""
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)

    def mark(self) -> Mark:
        """An event of the stream that this thread computes on.

        Who waits for it sleeps: threads that spin would take the processors from those that encode and send.
        """
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.index))
        return _CudaMark(event, self.index)

    @contextmanager
    def beside(self, mark: Mark, *, finish: bool = True) -> Iterator[None]:
        """On the stream of this thread. Memory that is made inside belongs to that stream."""
        stream = getattr(self._own, "stream", None)
        if stream is None:
            stream = self._own.stream = torch.cuda.Stream(self.index, priority=_FIRST)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            mark.wait()
            try:
                yield
            finally:
                if finish:
                    self.finish()

    def finish(self) -> None:
        """By a mark, which sleeps."""
        self.mark().reach()


HOST = Device()
_cuda = cache(CudaDevice)
_other = cache(_Accelerator)
_stand_ins: list[Callable[[torch.Tensor], Device | None]] = []


def device_of(tensor: torch.Tensor) -> Device:
    """What a tensor lies on; the host where it has no memory (``meta``), since what is sent for it is written there."""
    for recognise in _stand_ins:
        if (device := recognise(tensor)) is not None:
            return device
    kind = tensor.device.type
    if kind in ("cpu", "meta"):
        return HOST
    if kind == "cuda":
        return _cuda(torch.cuda.current_device() if tensor.device.index is None else tensor.device.index)
    return _other(kind)


@contextmanager
def standing_in(recognise: Callable[[torch.Tensor], Device | None]) -> Iterator[None]:
    """Inside, ``recognise`` is asked first what a tensor lies on: for tests where there is no other device."""
    _stand_ins.append(recognise)
    try:
        yield
    finally:
        _stand_ins.remove(recognise)


def has_stand_in() -> bool:
    """Whether host memory may stand for another device's."""
    return bool(_stand_ins)
