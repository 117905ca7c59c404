"""PyTorch Lightning: ``Trainer(strategy=BwbenchStrategy("bytegrad"), accelerator="cpu", devices=4)``."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from bwbench.base.errors import ConfigError
from bwbench.base.registry import COLLECTIVES
from bwbench.methods.memory import SavedMethod
from bwbench.training.library import Distributed, distribute
from bwbench.training.library.distribution import TIMEOUT_S
from bwbench.training.library.link_pacing import UNPACED, read_link
from bwbench.training.library.model_buffers import check_way
from bwbench.training.library.rank_part import replicas_differ

try:
    from lightning.pytorch import Trainer
    from lightning.pytorch.strategies import DDPStrategy
    from lightning.pytorch.trainer.states import TrainerFn
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("bwbench.lightning needs Lightning: pip install 'bwbench[lightning]'") from error

CHECKPOINT_KEY = "bwbench"


class BwbenchStrategy(DDPStrategy):
    """Lightning's way to start processes, and ours to keep their replicas in step.

    Processes are started, samplers replaced and metrics reduced as by Lightning's own ``ddp``; the model is not
    wrapped. One optimizer; automatic or manual optimization. Checkpoints are one file, as always, in which rank 0 has
    gathered what differs from rank to rank: residuals and momenta; parameters, buffers and optimizers as well where
    replicas are not equal at that moment.

    Args:
        algorithm: as for ``bwbench.distribute``.
        collective: likewise.
        compression: likewise.
        timeout_s: a message that takes longer than this ends training with an error.
        buffers: of the model, as for ``bwbench.distribute``.
        link: between the hosts, likewise.
        options: of Lightning's ``DDPStrategy``, such as ``start_method`` or ``process_group_backend``.

    Attributes:
        handle: what ``bwbench.distribute`` returned, while ``fit`` runs.
    """

    strategy_name = "bwbench"

    def __init__(
        self,
        algorithm: Any = "bytegrad",
        *,
        collective: Any = None,
        compression: Any = None,
        timeout_s: float = TIMEOUT_S,
        buffers: str = "local",
        link: str = UNPACED,
        **options: Any,
    ) -> None:
        super().__init__(timeout=timedelta(seconds=timeout_s), **options)
        self._asked = {"algorithm": algorithm, "collective": collective, "compression": compression}
        self._timeout_s, self._buffers, self._link = timeout_s, check_way(buffers), read_link(link).word
        self.handle: Distributed | None = None
        self._last_state: SavedMethod | None = None  # of a fit that is over, for a checkpoint that is saved then

    def configure_ddp(self) -> None:
        """Nothing: the model stays as it is."""

    def setup(self, trainer: Trainer) -> None:
        """As Lightning does it; for training, replicas join once model and optimizer are on their device.

        Raises ConfigError where there is another number of optimizers than one, and as ``bwbench.distribute``.
        """
        super().setup(trainer)
        if trainer.state.fn != TrainerFn.FITTING:
            return
        if len(self.optimizers) != 1:
            raise ConfigError(
                f"configure_optimizers() gives {len(self.optimizers)} optimizers; BwbenchStrategy works with one, "
                "which may have several parameter groups"
            )
        assert self.lightning_module is not None
        handle = distribute(
            self.lightning_module,
            self.optimizers[0],
            **self._asked,
            timeout_s=self._timeout_s,
            buffers=self._buffers,
            link=self._link,
        )
        if COLLECTIVES.load(handle.method.collective.name).wraps_model:
            handle.close()
            raise ConfigError("collective 'torch' is Lightning's own strategy: write Trainer(strategy='ddp')")
        self.handle, self._last_state = handle, None

    @contextmanager
    def block_backward_sync(self) -> Generator[None, None, None]:
        """Gradients of the passes inside are added up on this rank only."""
        with nullcontext() if self.handle is None else self.handle.no_sync():
            yield

    def on_validation_start(self) -> None:
        """Nothing moves while the model is evaluated."""
        if self.handle is not None:
            self.handle.drain()
        super().on_validation_start()

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Rank 0 writes one file, with the part of every rank in it. All ranks call this."""
        state = self.handle.state_dict() if self.handle is not None else self._last_state
        if state is not None and "optimizer_states" in checkpoint:
            parts: list[Any] | None = [None] * self.world_size if self.is_global_zero else None
            replica = {"state_dict": checkpoint["state_dict"], "optimizer_state": checkpoint["optimizer_states"][0]}
            # Model and optimizer of this rank only where they are not the same on all: otherwise rank 0's will do.
            dist.gather_object({"handle": state} | (replica if replicas_differ(replica) else {}), parts)
            if parts is not None:
                checkpoint[CHECKPOINT_KEY] = parts
        super().save_checkpoint(checkpoint, filepath, storage_options)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Optimizer, then what belongs to this rank. The file is read by every rank, as in Lightning's own strategies.

        Raises ConfigError where the checkpoint is of another strategy, method or number of ranks.
        """
        super().load_optimizer_state_dict(checkpoint)
        if self.handle is None:
            return
        parts = checkpoint.get(CHECKPOINT_KEY)
        if parts is None or len(parts) != self.world_size:
            found = "of another strategy" if parts is None else f"of {len(parts)} ranks"
            raise ConfigError(
                f"the checkpoint is {found}, and this is BwbenchStrategy on {self.world_size}; begin anew with its "
                "weights alone: load them into the model, and call fit without ckpt_path"
            )
        part = parts[self.global_rank]
        if "state_dict" in part:
            assert self.lightning_module is not None
            self.lightning_module.load_state_dict(part["state_dict"])
            self.optimizers[0].load_state_dict(part["optimizer_state"])
        try:
            self.handle.load_state_dict(part["handle"])
        except ValueError as error:
            raise ConfigError(f"the checkpoint does not fit: {error}") from error

    def on_exception(self, exception: BaseException) -> None:
        """Peers may be gone: nobody waits for them."""
        if self.handle is not None:
            self.handle.close(together=False)
            self.handle = None
        super().on_exception(exception)

    def teardown(self) -> None:
        """End communication; the strategy may be used again."""
        if self.handle is not None:
            self._last_state = self.handle.state_dict()
            self.handle.close()
            self.handle = None
        super().teardown()
