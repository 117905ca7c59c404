"""Entries at random places, the same on all ranks: their sum is dense, so that a plain ring carries it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.base.component import ComponentConfig
from bwbench.methods.buffers import array_of, tensor_of
from bwbench.methods.compression.codec import AbstractLinearCodec, AverageMessage, Shape, as_flat_fp32
from bwbench.methods.compression.error_feedback import Feedback
from bwbench.methods.compression.sparse import entries_at
from bwbench.methods.deferred import np, torch

_STEP_BYTES = 8  # in front of the payload of a rank on its own; an averaged message needs no number


class RandomKConfig(ComponentConfig):
    """Options of ``random-k``.

    Attributes:
        ratio: share of the entries of each tensor (bucket) that is sent; at least one is.
        unbiased: send the entries multiplied by 1/ratio, so that what arrives is right on average and nothing is kept
            back. The variance of the gradient grows by some 1/ratio for it.
        error_feedback: keep what is not sent and add it to the next step's gradient; not together with ``unbiased``.
    """

    ratio: float = Field(0.1, gt=0.0, le=1.0)
    unbiased: bool = False
    error_feedback: Feedback = True

    @model_validator(mode="before")
    @classmethod
    def _one_correction(cls, options: Any) -> Any:
        if not isinstance(options, dict) or options.get("unbiased") is not True:
            return options
        if options.get("error_feedback", False) is not False:
            text = "unbiased entries are multiplied by 1/ratio, and a residual would add up the same once more; "
            raise PydanticCustomError("random_k", f"{text}write error_feedback: false, or unbiased: false")
        return {**options, "error_feedback": False}


class RandomK(AbstractLinearCodec):
    """Sends the entries at places that follow from bucket and step alone, so no index ever crosses the link.

    After Stich et al. 2018 (sparsified SGD with memory); the seed is shared by all ranks. The places of a step are
    ``(a*i + b) mod n`` for i = 0, 1, …, with a (coprime to n) and b drawn anew in each step from a hash of bucket and
    step: every entry has the same chance, none comes twice, and drawing costs a multiplication an entry. What is not
    finite, anywhere in the input, makes the whole mean NaN: its place would seldom be among the chosen.
    """

    Config = RandomKConfig
    biased = True
    late_residual = True
    options: RandomKConfig

    _bucket = _step = 0

    def prepare(self, shapes: Sequence[Shape], rank: int = 0, bucket: int = 0) -> None:
        """Learn the number of the bucket: places differ between buckets, never between ranks."""
        super().prepare(shapes, rank, bucket)
        self._bucket = bucket

    def message_elements(self, num_elements: int) -> list[int]:
        """One message: the chosen values."""
        return [entries_at(self.options.ratio, num_elements)]

    def payload_bytes(self, num_elements: int) -> int:
        """That of a rank on its own: the number of the step, and the chosen values."""
        return _STEP_BYTES + sum(self.payloads(num_elements))

    def average(self, x: torch.Tensor, average_message: AverageMessage) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean at the chosen places, zeros elsewhere; and this rank's values there."""
        where = self._places(x.numel(), self._step)
        self._step += 1
        message = chosen_at(x, where)
        sent = dense_at(message, where, x.numel())
        average_message(message)
        return dense_at(message, where, x.numel(), self._scale(x.numel())), sent

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The number of the step, 8 bytes, and the values at its places."""
        payloads = [torch.tensor([self._step]).view(torch.uint8)]
        x = as_flat_fp32(x)
        self._alone(payloads)(chosen_at(x, self._places(x.numel(), self._step)))
        self._step += 1
        return torch.cat(payloads)

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The values at the places of the step that the payload names."""
        step = int(payload[:_STEP_BYTES].view(torch.int64)[0])
        (values,) = self._messages(payload[_STEP_BYTES:], num_elements)
        return dense_at(values, self._places(num_elements, step), num_elements, self._scale(num_elements))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The number of the next step."""
        return {**super().state_dict(), "step": torch.tensor(self._step)}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; an empty dict begins at step 0."""
        super().load_state_dict({key: value for key, value in state.items() if key != "step"})
        self._step = int(state["step"]) if "step" in state else 0

    def _places(self, num_elements: int, step: int) -> np.ndarray:
        return places(self._bucket, step, num_elements, entries_at(self.options.ratio, num_elements))

    def _scale(self, num_elements: int) -> float:
        """What arrives is multiplied by this."""
        if not self.options.unbiased:
            return 1.0
        return num_elements / max(1, entries_at(self.options.ratio, num_elements))


def places(bucket: int, step: int, num_elements: int, count: int) -> np.ndarray:
    """Where the ``count`` entries of one step lie: int64 of shape [count], each place once, in no order."""
    if count == 0:
        return np.empty(0, np.int64)
    digest = hashlib.blake2b(f"{bucket} {step}".encode(), digest_size=16).digest()
    stride, begin = (int.from_bytes(half, "little") % num_elements for half in (digest[:8], digest[8:]))
    while math.gcd(stride, num_elements) != 1:
        stride += 1
    steps = np.arange(count, dtype=np.uint64) * np.uint64(stride) + np.uint64(begin)
    return (steps % np.uint64(num_elements)).astype(np.int64)


def chosen_at(x: torch.Tensor, where: np.ndarray) -> torch.Tensor:
    """The entries at these places, in their order; NaN throughout where ``x`` holds anything that is not finite."""
    chosen = x.index_select(0, tensor_of(where))
    # A sum costs less than looking at each entry, and one that is finite has finite summands only.
    return chosen if bool(x.sum().isfinite()) or bool(x.isfinite().all()) else chosen.fill_(math.nan)


def dense_at(values: torch.Tensor, where: np.ndarray, num_elements: int, scale: float = 1.0) -> torch.Tensor:
    """Values times ``scale`` at their places, zeros elsewhere; NaN throughout where one of them is NaN."""
    if bool(values.isnan().any()):
        return torch.full((num_elements,), math.nan)
    dense = np.zeros(num_elements, np.float32)  # not torch.zeros: pages that stay zero are never touched
    dense[where] = array_of(values if scale == 1.0 else values * scale)
    return tensor_of(dense)
