"""Torch's own communication hooks of DistributedDataParallel: which one a codec stands for, and what it sends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bwbench.methods.algorithms.buckets import ELEMENT_BYTES, assign
from bwbench.methods.compression.base import AbstractCodec, Shape
from bwbench.methods.compression.error_feedback import ErrorFeedback
from bwbench.methods.compression.fp16 import Fp16
from bwbench.methods.compression.powersgd import PowerSgd, PowerSgdConfig

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

FP16_BYTES = 2
# Torch's own default: a matrix is sent as factors where these are less than half as large.
MIN_COMPRESSION_RATE = 2
# The earliest that torch allows, as it puts buckets together anew after the first step. Ours are steps of the warm-up.
FIRST_COMPRESSED_STEP = 2


def bare(codec: AbstractCodec) -> AbstractCodec:
    """The codec without error feedback around it: torch's hooks bring their own."""
    return codec.codec if isinstance(codec, ErrorFeedback) else codec


def hook_buckets(
    parameter_elements: Sequence[int], bucket_bytes: float | None, codec: AbstractCodec
) -> list[list[int]]:
    """Indices of the parameters of each of DDP's buckets.

    All in one for PowerSGD: on gloo torch's hook waits inside a callback of the thread that would serve the next
    bucket, so that two or more hang or mix their messages.
    """
    if isinstance(bare(codec), PowerSgd):
        return [list(reversed(range(len(parameter_elements))))]
    return assign(parameter_elements, bucket_bytes)


def hook_payloads(parameter_shapes: Sequence[Shape], bucket_bytes: float | None, codec: AbstractCodec) -> list[int]:
    """Bytes of every vector that DDP averages in one step, in order. Pure."""
    codec = bare(codec)
    if isinstance(codec, PowerSgd):
        return _powersgd_payloads(parameter_shapes, codec.options.rank)
    element_bytes = FP16_BYTES if isinstance(codec, Fp16) else ELEMENT_BYTES
    elements = [math.prod(shape) for shape in parameter_shapes]
    return [element_bytes * sum(elements[i] for i in bucket) for bucket in assign(elements, bucket_bytes)]


def register_hook(ddp: DistributedDataParallel, codec: AbstractCodec, group: dist.ProcessGroup) -> HookMemory:
    """Give DDP the hook that ``codec`` stands for, on ``group``; returns what the hook remembers."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    options = bare(codec).options
    state: Any = None
    if isinstance(options, PowerSgdConfig):
        state = powerSGD_hook.PowerSGDState(
            process_group=group,
            matrix_approximation_rank=options.rank,
            start_powerSGD_iter=FIRST_COMPRESSED_STEP,
            min_compression_rate=MIN_COMPRESSION_RATE,
            use_error_feedback=options.error_feedback,
            # A gradient of zeros would be divided by its length; torch's own remedy.
            orthogonalization_epsilon=_EPSILON,
        )
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif isinstance(bare(codec), Fp16):
        ddp.register_comm_hook(group, default_hooks.fp16_compress_hook)
    return HookMemory(state)


_EPSILON = 1e-8


class HookMemory:
    """What torch's PowerSGD remembers from step to step: residual and factors; nothing for the others."""

    _TENSORS = ("error_dict", "p_memory_dict", "q_memory_dict")

    def __init__(self, state: Any) -> None:
        self._state = state

    def reset(self) -> None:
        """Forget residual and factors. Steps taken stay counted, since DDP's buckets stay as they are."""
        self.load_state_dict({})

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Copies of residual and factors."""
        if self._state is None:
            return {}
        return {name: value.clone() for name in self._TENSORS for value in getattr(self._state, name).values()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; an empty dict forgets everything."""
        if self._state is None:
            return
        for name in self._TENSORS:
            getattr(self._state, name).clear()
            if name in state:
                getattr(self._state, name)[0] = state[name].clone()


def _powersgd_payloads(parameter_shapes: Sequence[Shape], rank: int) -> list[int]:
    """What is no matrix worth it, all left factors, all right factors."""
    plain = left = right = 0
    for shape in parameter_shapes:
        rows = shape[0] if shape else 1
        cols = math.prod(shape[1:])
        own_rank = min(rows, cols, rank)
        if (rows + cols) * own_rank * MIN_COMPRESSION_RATE < rows * cols:
            left, right = left + rows * own_rank, right + cols * own_rank
        else:
            plain += rows * cols
    return [ELEMENT_BYTES * length for length in (plain, left, right)]
