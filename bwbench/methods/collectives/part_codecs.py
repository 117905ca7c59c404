"""Codecs of the parts that a collective encodes apart from the bucket: each with a memory of its own."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from bwbench.methods.compression.base import AbstractCodec, Shape

if TYPE_CHECKING:
    import torch

_BUCKETS_APART = 1_000_003  # a prime: parts of different buckets get different random numbers


class PartCodecs:
    """Gives a codec for each part of a bucket, and keeps it: its residual belongs to that part alone.

    A bucket's codec stays as the caller has made it; its residual is never used where a part has a codec. State that
    is loaded before a part was first asked for waits until then. Safe for threads that have a bucket each.
    """

    def __init__(self) -> None:
        self._codecs: dict[str, AbstractCodec] = {}
        self._waiting: dict[str, dict[str, torch.Tensor]] = {}

    def part(
        self, codec: AbstractCodec, tag: int, number: int, length: int, rank: int, back: bool = False
    ) -> AbstractCodec:
        """The codec of part ``number`` of the bucket ``tag``, ``length`` elements long; ``back``: of a mean's way back.

        Where payloads of any cut stand for themselves (``sums_on_ring``) it is the bucket's own.
        """
        if codec.sums_on_ring:
            return codec
        codec = codec.answering() if back else codec
        return self._kept(f"{tag}.{number}", codec, [(length,)], rank, (tag + 1) * _BUCKETS_APART + number)

    def answer(self, codec: AbstractCodec, tag: int) -> AbstractCodec:
        """A second codec for the whole bucket ``tag``: that of a way back."""
        return self._kept(f"{tag}.answer", codec.answering())

    def forget(self) -> None:
        """Forget everything, as if no part had been encoded yet."""
        self._codecs, self._waiting = {}, {}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """``<bucket>.<part>.<key>`` of every part."""
        states = {name: codec.state_dict() for name, codec in self._codecs.items()}
        return {
            f"{name}.{key}": value
            for name, state in {**self._waiting, **states}.items()
            for key, value in state.items()
        }

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; an empty dict forgets everything."""
        self.forget()
        for key, value in state.items():
            tag, number, inside = key.split(".", 2)
            self._waiting.setdefault(f"{tag}.{number}", {})[inside] = value

    def _kept(
        self, name: str, codec: AbstractCodec, shapes: list[Shape] | None = None, rank: int = 0, bucket: int = 0
    ) -> AbstractCodec:
        kept = self._codecs.get(name)
        if kept is None:
            # A copy, because a fresh codec shares what has no memory, and preparing that would change the bucket's.
            kept = copy.deepcopy(codec.fresh())
            if shapes is not None:
                kept.prepare(shapes, rank, bucket)
            if name in self._waiting:
                kept.load_state_dict(self._waiting.pop(name))
            self._codecs[name] = kept
        return kept
