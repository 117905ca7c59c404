"""Hugging Face Accelerate: ``BwbenchAccelerator("bytegrad")`` in place of ``Accelerator()``."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.base.registry import COLLECTIVES
from bwbench.training.library import Distributed, distribute
from bwbench.training.library.distribution import TIMEOUT_S
from bwbench.training.library.link_pacing import UNPACED
from bwbench.training.library.rank_part import load_part, memory_of_their_own, save_part
from bwbench.training.library.refusals import SHARDED_ADVICE

try:
    from accelerate import Accelerator
    from accelerate.optimizer import AcceleratedOptimizer
    from accelerate.utils import DistributedType
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("bwbench.accelerate needs Accelerate: pip install 'bwbench[hf]'") from error

_SHARDING = ("FSDP", "MEGATRON_LM")
_PLAIN = ("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_XPU", "MULTI_NPU", "MULTI_MLU", "MULTI_HPU", "MULTI_MUSA")


class BwbenchAccelerator(Accelerator):  # type: ignore[misc]  # without types where it is not installed
    """Accelerate's way to place models, deal out data and accumulate, and ours to keep replicas in step.

    ``prepare`` gets one model and its optimizer, together or the model first. The model is not wrapped in torch's DDP:
    its hooks for communication come after that wrapping, and could replace no more than the average.

    Args:
        algorithm: as for ``bwbench.distribute``.
        collective: likewise.
        compression: likewise.
        timeout_s: likewise.
        buffers: likewise.
        link: likewise.
        options: of Accelerate's ``Accelerator``, such as ``cpu`` or ``gradient_accumulation_steps``.

    Attributes:
        handle: what ``bwbench.distribute`` returned, from ``prepare`` to ``free_memory`` or ``end_training``.
    """

    handle: Distributed | None

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
        super().__init__(**options)
        asked = {"algorithm": algorithm, "collective": collective, "compression": compression}
        self._ask({**asked, "timeout_s": timeout_s, "buffers": buffers, "link": link})

    @classmethod
    def taking_over(cls, accelerator: Accelerator, asked: Mapping[str, Any]) -> BwbenchAccelerator:
        """One that another program has made and goes on using, from now on of this class.

        Args:
            asked: arguments of ``bwbench.distribute``, by name.
        """
        accelerator.__class__ = cls
        assert isinstance(accelerator, cls)
        accelerator._ask(asked)
        return accelerator

    def _ask(self, asked: Mapping[str, Any]) -> None:
        """Raises ConfigError where Accelerate has been told to do what replicas cannot."""
        kind = self.distributed_type
        name = kind.name if isinstance(kind, DistributedType) else str(kind)
        if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":  # on CPUs Accelerate goes on without a word
            name = "FSDP"
        if name in _SHARDING or getattr(self, "parallelism_config", None) is not None:
            what = name if name in _SHARDING else "a parallelism_config"
            raise ConfigError(f"Accelerate has been told {what}: a model {SHARDED_ADVICE}")
        if name not in _PLAIN:
            raise ConfigError(
                f"Accelerate has been told {name}, which averages by itself; run 'accelerate config' and choose no "
                "distributed training beyond several processes (MULTI_CPU, MULTI_GPU), or start with torchrun"
            )
        self._asked = dict(asked)
        self.handle = None

    def prepare(self, *args: Any, device_placement: list[bool] | None = None) -> Any:
        """As Accelerate does it, in the same order; replicas join once the model is on its device.

        Raises ConfigError as ``bwbench.distribute``, and where there is another number of optimizers than one.
        """
        order = sorted(range(len(args)), key=lambda place: not isinstance(args[place], nn.Module))
        placement = device_placement
        if placement is not None and len(placement) == len(args):
            placement = [placement[place] for place in order]
        made = super().prepare(*(args[place] for place in order), device_placement=placement)
        if len(args) < 2:
            return made
        prepared = dict(zip(order, made, strict=True))
        return tuple(prepared[place] for place in range(len(args)))

    def prepare_model(
        self,
        model: nn.Module,
        device_placement: bool | None = None,  # noqa: FBT001 (Accelerate's)
        evaluation_mode: bool = False,  # noqa: FBT001, FBT002 (likewise)
    ) -> Any:
        """On its device, with mixed precision and compiled where that was asked for; not wrapped."""
        return super().prepare_model(model, device_placement=device_placement, evaluation_mode=True)

    def prepare_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        device_placement: bool | None = None,  # noqa: FBT001 (Accelerate's)
    ) -> Any:
        """As Accelerate does it, after the replicas have joined: it keeps the ``step`` that it finds."""
        plain = optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer
        if self.handle is not None and plain is self._joined[1]:
            return super().prepare_optimizer(optimizer, device_placement=device_placement)
        self._join(plain)  # also for an optimizer that an earlier training has left prepared
        return super().prepare_optimizer(plain, device_placement=device_placement)

    def _join(self, optimizer: torch.optim.Optimizer) -> None:
        if self.handle is not None:
            raise ConfigError(
                "a second optimizer; BwbenchAccelerator works with one, which may have several parameter groups. For "
                "another training call free_memory() first"
            )
        stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        model = next((one for one in self._models if any(id(p) in stepped for p in one.parameters())), None)
        if model is None:
            raise ConfigError("an optimizer without its model: prepare(model, optimizer), or the model first")
        handle = distribute(model, optimizer, **self._asked)
        if COLLECTIVES.load(handle.method.collective.name).wraps_model:
            handle.close()
            raise ConfigError("collective 'torch' is Accelerate's own way: write Accelerator()")
        self.handle, self._joined = handle, (model, optimizer)

    @contextmanager
    def no_sync(self, model: nn.Module | None = None) -> Generator[None, None, None]:
        """Gradients of the passes inside are added up on this rank only; ``accumulate`` comes here as well."""
        with nullcontext() if self.handle is None else self.handle.no_sync():
            yield

    def drain(self) -> None:
        """Nothing moves until the next step: before evaluations. All ranks call this."""
        if self.handle is not None:
            self.handle.drain()

    def save_state(self, output_dir: str | None = None, *args: Any, **options: Any) -> Any:
        """As Accelerate does it, with a file a rank of what replicas do not share. All ranks call this."""
        self.drain()
        with self._apart():
            folder = super().save_state(output_dir, *args, **options)
        self.save_part(folder)
        return folder

    def load_state(self, input_dir: str | None = None, *args: Any, **options: Any) -> None:
        """Take back what ``save_state`` wrote. Raises ConfigError where that is another method's."""
        self.drain()
        folders: list[str] = []
        noted = self.register_load_state_pre_hook(lambda models, folder: folders.append(folder))
        try:
            with self._apart():
                super().load_state(input_dir, *args, **options)
        finally:
            noted.remove()
        self.load_part(folders[0])

    def save_model(self, model: nn.Module, *args: Any, **options: Any) -> None:
        """As Accelerate does it. All ranks call this."""
        self.drain()
        with memory_of_their_own(model):
            super().save_model(model, *args, **options)

    def save_part(self, folder: str) -> None:
        """Write what belongs to this rank into a checkpoint's folder. All ranks call this."""
        if self.handle is not None:
            save_part(folder, self.handle, *self._joined)

    def load_part(self, folder: str) -> None:
        """Take it back, after model and optimizer."""
        if self.handle is not None:
            load_part(folder, self.handle, *self._joined)

    def free_memory(self, *objects: Any) -> Any:
        """As Accelerate does it; communication ends, and another training may begin. All ranks call this."""
        self.close()
        return super().free_memory(*objects)

    def end_training(self) -> None:
        """As Accelerate does it; communication ends. All ranks call this."""
        self.close()
        super().end_training()

    @contextmanager
    def _apart(self) -> Generator[None, None, None]:
        with ExitStack() as models:
            for model in self._models:
                models.enter_context(memory_of_their_own(model))
            yield

    def close(self, *, together: bool = True) -> None:
        """End communication; the model stays as it is. Safe to call twice.

        Args:
            together: all ranks close now, and wait for one another; False after an error.
        """
        if self.handle is not None:
            self.handle.close(together=together)
            self.handle = None
