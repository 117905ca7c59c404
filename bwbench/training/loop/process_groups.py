"""Who a worker is, and how it meets the others: two process groups, control (the default one) and data (the link).

Who it is stands in environment variables: ours, torchrun's or Slurm's. Without any it is rank 0 of 1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from bwbench.base import emulated_time
from bwbench.base.errors import ConfigError
from bwbench.network.namespaces.addresses import CONTROL_INTERFACE
from bwbench.training.loop.compute_device import NCCL_BY_SOCKETS
from bwbench.training.loop.control import ControlPath

# A backstop: one large message may rightly take minutes at 1 Mbit/s, and whether anyone still lives is the parent's
# business. gloo waits this long for each message by default as well.
GROUP_TIMEOUT = timedelta(minutes=30)
RENDEZVOUS_TIMEOUT = timedelta(minutes=5)  # importing torch, many workers on few cores
_INTERFACE = "GLOO_SOCKET_IFNAME"  # gloo reads it whenever a group is made
CHECKPOINT_INTERVAL_S = 600.0  # what an interruption may cost; a shorter cell is run again as a whole


@dataclass(frozen=True)
class WorkerEnvironment:
    """Who this worker is and where the others meet.

    Attributes:
        rank, world_size, master_address, master_port: torch's usual RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, on the
            control network. Where RANK is not set, Slurm's SLURM_PROCID and SLURM_NTASKS are the first two.
        data_interface, control_interface: interfaces for gloo (BWBENCH_DATA_INTERFACE, BWBENCH_CONTROL_INTERFACE);
            None leaves the choice to gloo.
        attempt: folder for the records (BWBENCH_ATTEMPT_DIR); None makes a new one beside the cell's file.
        checkpoint: folder of the checkpoint to go on from (BWBENCH_CHECKPOINT_DIR); the records have to begin with the
            events up to there. None begins at step 0.
        checkpoint_interval_s: seconds from one checkpoint to the next, at least (BWBENCH_CHECKPOINT_INTERVAL_S).
        store_is_served: torchrun's agent listens at the master's address (TORCHELASTIC_USE_AGENT_STORE); else rank 0
            does.
        restart: how often torchrun has started the workers anew (TORCHELASTIC_RESTART_COUNT).
    """

    rank: int = 0
    world_size: int = 1
    master_address: str = "127.0.0.1"
    master_port: int = 29500
    data_interface: str | None = None
    control_interface: str | None = None
    attempt: Path | None = None
    checkpoint: Path | None = None
    checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S
    store_is_served: bool = False
    restart: int = 0

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> WorkerEnvironment:
        """Take the values out of ``variables``; raises ConfigError where one is no number or out of range."""
        by_slurm = "RANK" not in variables and "SLURM_PROCID" in variables
        rank_name, size_name = ("SLURM_PROCID", "SLURM_NTASKS") if by_slurm else ("RANK", "WORLD_SIZE")
        rank, world_size = _number(variables, rank_name, 0), _number(variables, size_name, 1)
        if not 0 <= rank < world_size:
            raise ConfigError(
                f"{rank_name} is {rank} and {size_name} {world_size}; {rank_name} must be 0 to {world_size - 1}"
            )
        if by_slurm and world_size > 1 and "MASTER_ADDR" not in variables:
            raise ConfigError(
                "Slurm says which rank this is, and not where rank 0 listens: export MASTER_ADDR and MASTER_PORT "
                "before srun, as the file does that 'bwbench launch-script --slurm' prints"
            )
        attempt, checkpoint = variables.get("BWBENCH_ATTEMPT_DIR"), variables.get("BWBENCH_CHECKPOINT_DIR")
        return cls(
            rank=rank,
            world_size=world_size,
            master_address=variables.get("MASTER_ADDR", cls.master_address),
            master_port=_number(variables, "MASTER_PORT", cls.master_port),
            store_is_served=variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            restart=_number(variables, "TORCHELASTIC_RESTART_COUNT", 0),
            data_interface=variables.get("BWBENCH_DATA_INTERFACE") or None,
            control_interface=variables.get("BWBENCH_CONTROL_INTERFACE") or None,
            attempt=Path(attempt) if attempt else None,
            checkpoint=Path(checkpoint) if checkpoint else None,
            checkpoint_interval_s=_seconds(variables, "BWBENCH_CHECKPOINT_INTERVAL_S", cls.checkpoint_interval_s),
        )


def _number(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name} is {text!r}, which is not a whole number") from None


def _seconds(variables: Mapping[str, str], name: str, default: float) -> float:
    text = variables.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value >= 0.0:
        raise ConfigError(f"{name} is {text!r}, which is no number of seconds, such as 600")
    return value


@dataclass(frozen=True)
class Groups:
    """The control path, the data group (None on one node), and the store that they met at (likewise)."""

    control: ControlPath
    data: dist.ProcessGroup | None = None
    store: dist.Store | None = None  # type: ignore[name-defined]


def group_timeout() -> timedelta:
    """How long gloo waits for a message, as much longer as the training's time is slowed down."""
    return GROUP_TIMEOUT * max(1.0, emulated_time.machine_s(1.0))


def connect(
    environment: WorkerEnvironment, *, is_shared: bool = False, data_backend: Callable[[], str] = lambda: "gloo"
) -> Groups:
    """Meet the other ranks. Raises RuntimeError (torch's) where they do not come.

    Args:
        is_shared: the control path is the network that is measured.
        data_backend: gives that of the data group, in torch's words, once all have met: the same on every rank
            (``data_backend`` in compute_device.py).
    """
    # One by another name is a host's, and carries what other programs send.
    interface = CONTROL_INTERFACE if environment.control_interface == CONTROL_INTERFACE else None
    if environment.world_size == 1:
        return Groups(ControlPath(interface=interface))
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
            "gloo", store=store, rank=environment.rank, world_size=environment.world_size, timeout=group_timeout()
        )
    backend = data_backend()
    with _gloo_interface(environment.data_interface):
        if "nccl" in backend:  # reads them when it first sends
            os.environ |= NCCL_BY_SOCKETS
            if environment.data_interface:
                os.environ["NCCL_SOCKET_IFNAME"] = f"={environment.data_interface}"
        data = dist.new_group(backend=backend, timeout=group_timeout())
    assert dist.group.WORLD is not None
    return Groups(ControlPath(dist.group.WORLD, store, interface, is_shared=is_shared), data, store)


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
