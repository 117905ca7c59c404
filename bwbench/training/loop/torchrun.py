"""torchrun whose store listens on the experiment's network alone.

``python -m bwbench.training.loop.torchrun ARGUMENTS``.

torch's own rendezvous listens at every address of the first host. Here it is torch's static one, with a socket for the
store that is bound already, registered the way that torch documents for rendezvous of one's own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.run import main as torchrun

from bwbench.base.listening import listening_socket

BACKEND = "bwbench"  # --rdzv-backend; needs --rdzv-endpoint=ADDRESS:PORT of the first host and --rdzv-conf=rank=N
MEET_LIMIT_S = 600  # torch's own
# How a worker has ended can be read of it until torchrun has asked, which it does every 0.1 s by default: on a busy
# machine its companion came too late, and the record said of a killed rank only that it had ended.
LOOK_EVERY_S = 1.0


class _OneAddress(StaticTCPRendezvous):
    def get_backend(self) -> str:
        return BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        if self.rank == 0 and self._store is None:
            self._store = TCPStore(
                self.master_addr,
                self.master_port,
                self.world_size,
                is_master=True,
                timeout=self.timeout,
                multi_tenant=True,
                master_listen_fd=listening_socket(self.master_addr, self.master_port).detach(),  # the store closes it
                use_libuv=torch.__version__ >= "2.8",  # its server took no socket before (pytorch #150215)
            )
        return super().next_rendezvous()


def _handler(parameters: RendezvousParameters) -> RendezvousHandler:
    address, port = parse_rendezvous_endpoint(parameters.endpoint, default_port=-1)
    rank = parameters.get_as_int("rank")
    assert rank is not None
    return _OneAddress(address, port, rank, parameters.max_nodes, parameters.run_id, MEET_LIMIT_S)


def main(words: Sequence[str] | None = None) -> None:
    """As torchrun's; None takes the words of the command line."""
    rendezvous_handler_registry.register(BACKEND, _handler)
    torchrun([f"--monitor-interval={LOOK_EVERY_S}", *(sys.argv[1:] if words is None else words)])


if __name__ == "__main__":
    main()
