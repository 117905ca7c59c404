"""The control path: barriers, means of metrics and the decision to stop, beside the shaped link."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

import torch
import torch.distributed as dist

from bwbench.methods.algorithms.algorithm import average_over
from bwbench.training.loop.interfaces import counters_of

_STOP_KEY = "bwbench/stop"


@dataclass(frozen=True)
class Stop:
    """Why training ends: ``done`` with ``target``, ``samples`` or ``time``; ``diverged`` with what was seen."""

    status: Literal["done", "diverged"]
    reason: str


class ControlPath:
    """What ranks tell each other apart from training payload. On one rank everything is local.

    Args:
        group: process group on the control network.
        store: key-value store of the control network.
        interface: of the control network, where that is the node's own and carries nothing else.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        store: dist.Store | None = None,  # type: ignore[name-defined]
        interface: str | None = None,
    ) -> None:
        self._group, self._store, self.interface = group, store, interface
        self._local_stop: tuple[int | None, Stop] | None = None
        self._step: tuple[int, int | None] = (0, 0)
        self.rank = group.rank() if group is not None else 0
        self.size = group.size() if group is not None else 1

    def sent_bytes(self) -> int:
        """What has left by the control network's own interface, whoever sent it; 0 where there is none."""
        return counters_of(self.interface)[0] if self.interface is not None else 0

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self._group is not None:
            self._group.barrier().wait()

    def average(self, values: torch.Tensor) -> None:
        """Replace ``values`` (fp32) by their mean over all ranks, the same bits everywhere."""
        average_over(self._group, values)

    def mean(self, metrics: dict[str, float], weight: int = 1) -> dict[str, float]:
        """Mean of each metric over all ranks, added up in the order of the ranks: the same bits everywhere.

        Args:
            weight: samples that this rank's metrics were found on.
        """
        if self._group is None:
            return dict(metrics)
        own = torch.tensor([*metrics.values(), 1.0], dtype=torch.float64) * weight
        gathered = [torch.empty_like(own) for _ in range(self.size)]
        self._group.allgather([gathered], [own]).wait()
        *sums, total = torch.stack(gathered).sum(0).tolist()
        return {metric: value / total for metric, value in zip(metrics, sums, strict=True)}

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Sum of ``values`` over all ranks."""
        summed = values.clone()
        if self._group is not None:
            self._group.allreduce([summed]).wait()
        return summed

    def any(self, flag: bool) -> bool:  # noqa: FBT001 (a value, as for the built-in)
        """Whether ``flag`` holds on any rank."""
        return bool(self.total(torch.tensor([float(flag)])) > 0)

    def begin_step(self, number: int, last_step: int | None) -> None:
        """A step begins.

        Args:
            last_step: the one after which training ends where this rank asks for it in this step, as in
                ``publish_stop``.
        """
        self._step = number, last_step

    def diverged(self, what: str) -> None:
        """Ask all ranks to end as soon as they can, because of ``what`` was found here; see ``publish_stop``.

        Raises FloatingPointError where there are other ranks and no store to ask by: in a training script of its own.
        """
        if self._group is not None and self._store is None:
            raise FloatingPointError(f"{what}, on rank {self.rank}")
        number, last_step = self._step
        self.publish_stop(Stop("diverged", f"{what} in step {number}, on rank {self.rank}"), last_step)

    def publish_stop(self, stop: Stop, step: int | None) -> None:
        """Ask all ranks to end after step number ``step``, which no rank completes before it has heard from this one;
        None: at the next evaluation, which is between two barriers. The first rank to ask is the one that counts.

        To be called before this rank sends anything of the step: whoever completes the step has then received from this
        rank after the request was stored, so that all ranks find it at the end of the same step. No collective is
        needed, and no rank waits for another one that has stopped already.
        """
        if self._store is None:
            self._local_stop = self._local_stop or (step, stop)
        else:  # answered by the store, unlike set: the request is there when this returns
            self._store.compare_set(_STOP_KEY, "", json.dumps([step, asdict(stop)]))

    def withdraw_stop(self) -> None:
        """Forget a request, on all ranks. Between two barriers only."""
        self._local_stop = None
        if self._store is not None and self.rank == 0:
            self._store.delete_key(_STOP_KEY)

    def published_stop(self, step: int | None) -> Stop | None:
        """What a rank has asked for, once step number ``step`` is complete here. Takes some 10 us.

        A faster rank may be a step ahead and ask for that one already: then there is nothing to do yet. None, between
        the barriers of an evaluation: whatever was asked for.
        """
        if self._store is None:
            found = self._local_stop
        elif self._store.check([_STOP_KEY]):
            asked_for = json.loads(self._store.get(_STOP_KEY))
            found = asked_for[0], Stop(**asked_for[1])
        else:
            found = None
        if found is None:
            return None
        last_step, stop = found
        if step is not None and (last_step is None or last_step > step):
            return None
        return stop
