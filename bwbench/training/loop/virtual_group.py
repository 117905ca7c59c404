"""A process group without processes: messages between ranks that take turns in one process, and sums as gloo's.

Algorithms, collectives and codecs run as they are, and so does torch's DistributedDataParallel. What is copied here is
the order in which gloo's all-reduce adds, which decides its bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from bwbench.training.loop.rank_turns import RankTurns

# gloo's: of a segment of its ring, at most; and there are two segments a rank at least (``allreduce.cc``).
SEGMENT_BYTES = 1024 * 1024
LEAST_SEGMENTS = 2
_Way = tuple[int, int, int]  # from, to, tag


class _Done:
    """Work that was done when it was begun."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Nothing to wait for."""
        return True


_DONE = _Done()


@dataclass
class _Receive:
    """A buffer that waits for its message."""

    turns: RankTurns
    rank: int
    buffer: torch.Tensor
    is_filled: bool = False
    is_awaited: bool = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Let others run until it is here; raises RuntimeError where it will not be."""
        self.is_awaited = True
        while not self.is_filled:
            self.turns.pause()
        return True

    def fill(self, message: torch.Tensor) -> None:
        """It is here."""
        _copy(message, self.buffer)
        self.is_filled = True
        if self.is_awaited:
            self.turns.wake(self.rank)


@dataclass
class _Meeting:
    """What the ranks bring to something that all of them do."""

    brought: dict[int, Any] = field(default_factory=dict)
    result: Any = None
    is_over: bool = False


class VirtualNetwork:
    """What the groups of all ranks share: messages on their way, and meetings.

    A message is copied when it is sent, so that whoever sends waits for nobody. Messages of one way and tag are
    received in the order in which they were sent, into buffers in the order in which those were announced.
    """

    def __init__(self, turns: RankTurns, num_ranks: int) -> None:
        self.turns, self.num_ranks = turns, num_ranks
        self._sent: dict[_Way, deque[torch.Tensor]] = {}
        self._announced: dict[_Way, deque[_Receive]] = {}
        self._meetings: dict[int, _Meeting] = {}

    def groups(self) -> list[VirtualGroup]:
        """One for each rank."""
        return [VirtualGroup(self, rank) for rank in range(self.num_ranks)]

    def send(self, message: torch.Tensor, way: _Way) -> None:
        """Into the buffer that has been announced for longest, else kept until there is one."""
        self.turns.check()
        if announced := self._announced.get(way):
            announced.popleft().fill(message)
        else:
            self._sent.setdefault(way, deque()).append(message.clone())

    def receive(self, buffer: torch.Tensor, way: _Way) -> _Receive:
        """The message that has been kept for longest, else the next one that is sent."""
        receive = _Receive(self.turns, way[1], buffer)
        if sent := self._sent.get(way):
            receive.fill(sent.popleft())
        else:
            self._announced.setdefault(way, deque()).append(receive)
        return receive

    def meet(self, number: int, rank: int, own: Any, combine: Callable[[list[Any]], Any]) -> Any:
        """What ``combine`` makes of what all have brought, by rank; the last one to come calls it.

        Args:
            number: of the meeting, which is the same on all ranks.
        """
        meeting = self._meetings.setdefault(number, _Meeting())
        meeting.brought[rank] = own
        if len(meeting.brought) == self.num_ranks:
            meeting.result = combine([meeting.brought[other] for other in range(self.num_ranks)])
            meeting.is_over = True
            del self._meetings[number]
            for other in range(self.num_ranks):
                self.turns.wake(other)
        while not meeting.is_over:
            self.turns.pause()
        return meeting.result


class VirtualGroup(dist.ProcessGroup):
    """One rank's view of a virtual network, with those verbs of a process group that are used here and by torch's DDP.

    Attributes:
        takes_turns: whoever uses it is the only one of all ranks who runs, and threads of its own would wait for ever.
    """

    takes_turns = True

    def __init__(self, network: VirtualNetwork, rank: int) -> None:
        super().__init__(rank, network.num_ranks)  # type: ignore[call-arg]  # torch's own stubs know one of two
        self._network, self._own, self._num_met = network, rank, 0

    def rank(self) -> int:
        """Of this rank."""
        return self._own

    def size(self) -> int:
        """How many there are."""
        return self._network.num_ranks

    def getBackendName(self) -> str:
        """For torch's messages."""
        return "virtual"

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Any:
        """Sent when this returns."""
        self._network.send(tensors[0], (self._own, to, tag))
        return _DONE

    def recv(self, tensors: list[torch.Tensor], sender: int, tag: int) -> Any:
        """Work that ends when the message is here."""
        return self._network.receive(tensors[0], (sender, self._own, tag))

    def barrier(self, options: object = None) -> Any:
        """Over when this returns."""
        self._meet(None, lambda brought: None)
        return _work([])

    def allreduce(  # type: ignore[override]  # of its overloads the one that is called, here and below
        self, tensors: list[torch.Tensor], options: Any = None
    ) -> Any:
        """The sum, in place; done when this returns."""
        if options is not None and options.reduceOp != dist.ReduceOp.SUM:
            raise NotImplementedError("virtual nodes add up, and nothing else")
        (own,) = tensors
        total = self._meet(own, ring_sum)
        own.detach().copy_(total.view(own.shape))
        return _work(tensors)

    def allgather(  # type: ignore[override]
        self, gathered: list[list[torch.Tensor]], tensors: list[torch.Tensor], options: object = None
    ) -> Any:
        """What each rank gives; done when this returns."""
        # Copies: who has read them may change its own before the last one reads it.
        brought = self._meet(tensors[0], lambda brought: [one.clone() for one in brought])
        for place, value in zip(gathered[0], brought, strict=True):
            place.detach().copy_(value)
        return _work(gathered[0])

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> Any:  # type: ignore[override]
        """What the root has, in place; done when this returns."""
        values = self._meet(tensors, lambda brought: [one.clone() for one in brought[options.rootRank]])
        for place, value in zip(tensors, values, strict=True):
            place.detach().copy_(value)
        return _work(tensors)

    def _meet(self, own: Any, combine: Callable[[list[Any]], Any]) -> Any:
        self._num_met += 1
        return self._network.meet(self._num_met, self._own, own, combine)


def ring_sum(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of tensors of one shape as a flat one, with the bits of gloo's all-reduce (its ring algorithm).

    gloo cuts a vector into as many chunks as there are ranks. Chunk c starts at rank c - 1 and goes down the ranks,
    each of which adds its own part, until it is complete on rank c.
    """
    size, elements = len(values), values[0].numel()
    chunk = chunk_elements(elements, values[0].element_size(), size)
    rows = values[0].new_zeros(size, size, chunk)  # by rank and chunk
    for row, value in zip(rows, values, strict=True):
        row.view(-1)[:elements] = value.detach().reshape(-1)
    total = rows.new_empty(size, chunk)
    for behind in range(1, size + 1):  # chunk c takes the part of rank c - behind: the chunks lie on a diagonal
        for row, first, count in ((0, behind, size - behind), (size - behind, 0, behind)):
            diagonal = rows.as_strided(
                (count, chunk), (rows.stride(0) + chunk, 1), row * rows.stride(0) + first * chunk
            )
            part = total[first : first + count]
            if behind == 1:
                part.copy_(diagonal)
            else:
                part.add_(diagonal)
    return total.view(-1)[:elements]


def chunk_elements(elements: int, element_bytes: int, num_ranks: int) -> int:
    """Elements of each rank's chunk of gloo's ring, as it cuts a vector into segments; the last ones may be empty."""
    segments = max(-(-elements * element_bytes // SEGMENT_BYTES), LEAST_SEGMENTS * num_ranks)
    each = -(-segments // num_ranks)
    return each * -(-elements * element_bytes // (each * num_ranks * element_bytes))


def _copy(message: torch.Tensor, buffer: torch.Tensor) -> None:
    """Into the beginning of a buffer. Raises RuntimeError where it does not fit."""
    if message.dtype == buffer.dtype and message.shape == buffer.shape:
        buffer.copy_(message)
        return
    source, place = message.reshape(-1).view(torch.uint8), buffer.view(-1).view(torch.uint8)
    if source.numel() > place.numel():
        raise RuntimeError(f"a message of {source.numel()} bytes for a buffer of {place.numel()}: the ranks disagree")
    place[: source.numel()] = source


def _work(result: list[torch.Tensor]) -> Any:
    """Work that is done, for torch's own code too."""
    # Of GPUs the future is to know the streams.
    gpus: list[int | str | torch.device] = list({tensor.device for tensor in result if tensor.is_cuda})
    future: torch.futures.Future[Any] = torch.futures.Future(devices=gpus) if gpus else torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)  # type: ignore[attr-defined]
