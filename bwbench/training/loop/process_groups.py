"""Two process groups on two networks: control (the default group) and data (the shaped link)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

from bwbench.training.loop.control import ControlPath
from bwbench.training.loop.environment import WorkerEnvironment

# A backstop: one large message may rightly take minutes at 1 Mbit/s, and whether anyone still lives is the parent's
# business. gloo waits this long for each message by default as well.
GROUP_TIMEOUT = timedelta(minutes=30)
RENDEZVOUS_TIMEOUT = timedelta(minutes=5)  # importing torch, many workers on few cores
_INTERFACE = "GLOO_SOCKET_IFNAME"  # gloo reads it whenever a group is made


@dataclass(frozen=True)
class Groups:
    """The control path, the data group (None on one node), and the store that they met at (likewise)."""

    control: ControlPath
    data: dist.ProcessGroup | None = None
    store: dist.Store | None = None  # type: ignore[name-defined]


def connect(environment: WorkerEnvironment) -> Groups:
    """Meet the other ranks. Raises RuntimeError (torch's) where they do not come."""
    if environment.world_size == 1:
        return Groups(ControlPath())
    served = dist.TCPStore(  # type: ignore[attr-defined]
        environment.master_address,
        environment.master_port,
        None if environment.store_is_served else environment.world_size,
        is_master=environment.rank == 0 and not environment.store_is_served,
        timeout=RENDEZVOUS_TIMEOUT,
    )
    # torchrun keeps its own keys in the store that it serves, and those of an earlier start of the workers.
    store = dist.PrefixStore(f"bwbench/{environment.restart}", served)  # type: ignore[attr-defined]
    with _gloo_interface(environment.control_interface):
        dist.init_process_group(
            "gloo", store=store, rank=environment.rank, world_size=environment.world_size, timeout=GROUP_TIMEOUT
        )
    with _gloo_interface(environment.data_interface):
        data = dist.new_group(backend="gloo", timeout=GROUP_TIMEOUT)
    assert dist.group.WORLD is not None
    return Groups(ControlPath(dist.group.WORLD, store), data, store)


@contextmanager
def _gloo_interface(name: str | None) -> Iterator[None]:
    before = os.environ.get(_INTERFACE)
    if name:
        os.environ[_INTERFACE] = name
    try:
        yield
    finally:
        if name and before is None:
            del os.environ[_INTERFACE]
        elif name and before is not None:
            os.environ[_INTERFACE] = before
