"""torchrun whose store listens on the experiment's network alone.

``python -m bwbench.training.loop.torchrun ARGUMENTS``.

torch's own rendezvous listens at every address of the first host. Here it is torch's static one, with a socket for the
store that is bound already, registered the way that torch documents for rendezvous of one's own.

Who ends it, by Ctrl-C or another signal, gets no traceback, and the exit status is 128 and the signal's number. Where a
worker has failed that has said why, and the exit status is 1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # before torch, which takes seconds
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, until it has workers: torch sees to those

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.run import main as torchrun

from bwbench.base.die_with_parent import prctl
from bwbench.base.listening import listening_socket

BACKEND = "bwbench"  # --rdzv-backend; needs --rdzv-endpoint=ADDRESS:PORT of the first host and --rdzv-conf=rank=N
MEET_LIMIT_S = 600  # torch's own
# How a worker has ended can be read of it until torchrun has asked, which it does every 0.1 s by default: on a busy
# machine its companion came too late, and the record said of a killed rank only that it had ended.
LOOK_EVERY_S = 1.0
COMPANION_LIMIT_S = 15.0  # after the workers have ended: for their companions to write the result
POLL_S = 0.05
_PR_SET_CHILD_SUBREAPER = 36  # a companion outlives its worker: its parent is then this process, which can wait for it


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
    """As torchrun's; None takes the words of the command line. Returns once what its workers have started is through.

    Raises SystemExit where a worker has failed, or a signal has ended it.
    """
    rendezvous_handler_registry.register(BACKEND, _handler)
    with contextlib.suppress(OSError):  # an old kernel: companions are then nobody's, and write what they know alone
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
    status = _run([f"--monitor-interval={LOOK_EVERY_S}", *(sys.argv[1:] if words is None else words)])
    _await_companions()
    if status:
        sys.exit(status)


def _run(words: Sequence[str]) -> int:
    """Run torch's own; the exit status."""
    try:
        torchrun(words)
    except SignalException as error:
        return 128 + error.sigval
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        how = f"signal {-failure.exitcode}" if failure.exitcode < 0 else f"exit status {failure.exitcode}"
        print(f"rank {rank} was the first to end here, with {how}", file=sys.stderr)
        return 1
    return 0


def _await_companions() -> None:
    """Until those of the workers have written the cell's result: whoever waits for this process may end them then."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # no workers are left to end
        signal.signal(number, signal.SIG_IGN)
    deadline_s = time.monotonic() + COMPANION_LIMIT_S
    while time.monotonic() < deadline_s:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(POLL_S)


if __name__ == "__main__":
    main()
