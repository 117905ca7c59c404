"""From the ``compression:`` key, a chain of components, to the codec that a bucket is sent with."""

from __future__ import annotations

from collections.abc import Sequence

from bwbench.compression.base import AbstractCodec
from bwbench.compression.error_feedback import ErrorFeedback
from bwbench.config.codec_chain import nest
from bwbench.config.component import Component


def build_codec(chain: Sequence[Component]) -> AbstractCodec:
    """A new codec for one bucket, wrapped in error feedback where it is biased and its options do not say otherwise.

    Each codec of the chain encodes the values that the one before it carries; one residual catches what all of them
    lose together. The option ``error_feedback`` is that of the first one. Raises ConfigError where the chain makes no
    sense.
    """
    codec: AbstractCodec = nest(chain)
    if codec.keeps_residual:
        return codec
    with_feedback = getattr(codec.options, "error_feedback", loses(codec))
    return ErrorFeedback(codec) if with_feedback else codec


def loses(codec: AbstractCodec) -> bool:
    """Whether a codec, or one that encodes what it carries, loses something for good without error feedback."""
    return codec.biased or (codec.inner is not None and loses(codec.inner))
