"""Memory for values: the way between device and host, host memory for results and for work, views of it as arrays.

Codecs, sockets and gloo work in host memory. Parameters and gradients lie where the model is. ``on_host`` and
``give_back`` are the one way from there and back again; on the CPU both cost nothing, because nothing is copied. They
copy on the queue (stream) that the calling thread computes on; in a thread that works ``beside`` computing
(``devices.py``) that is one of its own, so that copies run while a backward pass goes on.

A pass over a large tensor costs what its memory costs, and new memory costs most: the kernel clears it page by page,
which takes as long as copying as much some ten times. So codecs work piece by piece, each small enough that all passes
over it but the first find it in the cache, and results go into memory that an earlier result has left.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

from bwbench.methods.deferred import np, torch
from bwbench.methods.devices import Device, Mark, device_of, has_stand_in

# Elements: 1 MiB of fp32. A piece, its scratch memory and its codes stay in the caches of one core. Smaller pieces are
# slower: a call of torch or numpy takes a microsecond and some twenty are made a piece; at 64 Ki elements half of the
# time went there.
PIECE = 262_144
SMALLEST_KEPT_BYTES = 64 * 1024  # below, the C library itself reuses memory
LARGEST_KEPT_BYTES = 512 * 2**20  # more is given back: a few results of the largest model that anyone trains here

_free: dict[int, list[Any]] = {}  # numpy arrays by size; lists, because append and pop need no lock
_local = threading.local()


def on_host(values: torch.Tensor) -> torch.Tensor:
    """Float values as a contiguous fp32 vector in host memory; the same memory where they are one already.

    Waits until the device has produced and copied them.
    """
    flat = values.detach().reshape(-1)
    device = device_of(flat)
    flat = flat.to(torch.float32).contiguous()
    return _fetched(flat, device) if device.elsewhere else flat


def give_back(changed: torch.Tensor, values: torch.Tensor) -> None:
    """Write what ``on_host(values)`` gave, changed since then, to where it came from; nothing where both are one.

    On a GPU that is under way when this returns: ``changed`` is not to be touched before what follows there is done.
    """
    device = device_of(values)
    if device.elsewhere:
        values.copy_(changed.view(values.shape), non_blocking=device.copies_beside)
    elif changed.data_ptr() != values.data_ptr() or changed.dtype != values.dtype:
        values.copy_(changed.view(values.shape))


def moved_to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor in host memory, of the same type and shape; the same memory where it is one already."""
    device, here = device_of(tensor), tensor.detach().contiguous()
    return _fetched(here, device) if device.elsewhere else here


def moved_like(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A tensor of the host where ``like`` lies; itself where that is the host.

    To a GPU through pinned memory, without waiting: what is told the GPU next comes after the copy.
    """
    device = device_of(like)
    if not device.elsewhere:
        return tensor
    pinned = device.host_memory(tensor.shape, tensor.dtype)
    pinned.copy_(tensor)
    return like.new_empty(tensor.shape, dtype=tensor.dtype).copy_(pinned, non_blocking=device.copies_beside)


def _fetched(tensor: torch.Tensor, device: Device) -> torch.Tensor:
    host = device.host_memory(tensor.shape, tensor.dtype)
    host.copy_(tensor, non_blocking=device.copies_beside)
    device.finish()
    return host


class FiniteSoon:
    """Whether a sum of values is finite, asked without waiting: the device answers when it gets there.

    Args:
        values: as they will be when the device has done what this thread has told it so far.
    """

    def __init__(self, values: torch.Tensor) -> None:
        device = device_of(values)
        self._answer = device.host_memory((), torch.bool)
        self._answer.copy_(torch.isfinite(values.sum()), non_blocking=device.copies_beside)
        self._mark: Mark = device.mark()

    def get(self) -> bool:
        """Wait for the answer. False leaves it open: large values may add up beyond the range of their type."""
        self._mark.reach()
        return bool(self._answer)


class HostSoon:
    """fp32 values on their way to the host, beside what this thread tells the device next.

    Args:
        values: a contiguous fp32 vector, as it will be when the device has done what this thread has told it so far;
            not to be changed before ``get`` has returned.
    """

    def __init__(self, values: torch.Tensor) -> None:
        device = device_of(values)
        with device.beside(device.mark(), finish=False):
            self._host = device.host_memory(values.shape, values.dtype)
            self._host.copy_(values, non_blocking=device.copies_beside)
            self._mark: Mark = device.mark()

    def get(self) -> torch.Tensor:
        """Wait until they are there: what ``on_host`` gives."""
        self._mark.reach()
        return self._host


def bytes_of(tensor: torch.Tensor) -> bytes:
    """The values of a tensor, of any type and on any device, as they lie in memory."""
    return bytes(array_of(moved_to_host(tensor).reshape(-1).view(torch.uint8)).tobytes())


def array_of(tensor: torch.Tensor) -> Any:
    """The memory of a tensor on the host as a numpy array: what is written there stands in the tensor."""
    if has_stand_in() and device_of(tensor).elsewhere:
        raise TypeError("a tensor on a device is read as an array of the host")
    return tensor.numpy()


def tensor_of(array: Any) -> torch.Tensor:
    """The memory of a numpy array as a tensor."""
    return torch.from_numpy(array)


def zeros_untouched(shape: Sequence[int]) -> torch.Tensor:
    """fp32 zeros that take memory once something is written: until then the kernel shows one page of them."""
    return tensor_of(np.zeros(tuple(shape), np.float32))


def empty_fp32(num_elements: int) -> torch.Tensor:
    """An fp32 vector without content, whose memory is used again when the last tensor that sees it is gone."""
    return empty_bytes(4 * num_elements).view(torch.float32)


def size_of_memory(num_bytes: int) -> int:
    """Bytes of the memory behind so many: the next of four sizes between powers of two, for tensors of like size."""
    unit = 1 << max(0, (num_bytes - 1).bit_length() - 3)
    return -(-num_bytes // unit) * unit


def empty_bytes(num_bytes: int) -> torch.Tensor:
    """A uint8 vector without content, whose memory is used again when the last tensor that sees it is gone."""
    if num_bytes < SMALLEST_KEPT_BYTES:
        return torch.empty(num_bytes, dtype=torch.uint8)
    size = size_of_memory(num_bytes)
    try:
        memory = _free[size].pop()
    except (KeyError, IndexError):
        memory = np.empty(size, np.uint8)  # numpy's, because it asks for huge pages where torch does not
    # A tensor made from an array holds on to that very array, so that the array's end tells of the last tensor's.
    lent = memory[:num_bytes]
    weakref.finalize(lent, _give_back, memory).atexit = False
    return tensor_of(lent)


def _give_back(memory: Any) -> None:
    if memory.nbytes + sum(size * len(arrays) for size, arrays in tuple(_free.items())) <= LARGEST_KEPT_BYTES:
        _free.setdefault(memory.nbytes, []).append(memory)


class Scratch:
    """Room for the work on one piece.

    Attributes:
        floats, more_floats: fp32 of shape [PIECE].
        shorts: int16 of shape [PIECE].
        numbers: uint8 of shape [PIECE + 8], the digits of packed numbers and what fills up the last byte.
    """

    def __init__(self) -> None:
        self.floats, self.more_floats = torch.zeros(PIECE), torch.zeros(PIECE)
        self.shorts = torch.zeros(PIECE, dtype=torch.int16)
        self.numbers = torch.zeros(PIECE + 8, dtype=torch.uint8)

    def like(self, rows: torch.Tensor) -> torch.Tensor:
        """``floats`` in the shape of ``rows``."""
        return self.floats[: rows.numel()].view(rows.shape)

    def magnitudes(self, rows: torch.Tensor) -> torch.Tensor:
        """The absolute values of ``rows`` (at most a piece), in ``floats``."""
        return torch.abs(rows, out=self.like(rows))

    def to_numbers(self, values: torch.Tensor) -> Any:
        """``values`` (fp32, 0 to 255) without their fractions, at the beginning of ``numbers``: numpy uint8.

        Zeros follow, to fill up a byte of packed ones. By way of 16 bits, because torch takes four times as long from
        fp32 to 8 bits directly.
        """
        count = values.numel()
        self.numbers[:count].copy_(self.shorts[:count].copy_(values.view(-1)))
        numbers = array_of(self.numbers)
        numbers[count : count + 8] = 0
        return numbers

    def from_numbers(self, zero: int, values: torch.Tensor) -> None:
        """The inverse, less ``zero`` (up to 127): from ``numbers`` to ``values``."""
        count = values.numel()
        numbers = self.numbers[:count]
        array = array_of(numbers)
        np.subtract(array, np.uint8(zero), out=array)  # modulo 256: below zero as an int8
        values.view(-1).copy_(numbers.view(torch.int8))


def scratch() -> Scratch:
    """That of this thread; its content is anyone's as soon as another codec works in the same thread."""
    if not hasattr(_local, "scratch"):
        _local.scratch = Scratch()
    found: Scratch = _local.scratch
    return found
