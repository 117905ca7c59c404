"""From the ``compression:`` key, a chain of components, to the codec that a bucket is sent with."""

from __future__ import annotations

from collections.abc import Sequence

from bwbench.compression.base import AbstractCodec
from bwbench.compression.error_feedback import ErrorFeedback
from bwbench.compression.none import NoCompression
from bwbench.config.component import Component
from bwbench.errors import ConfigError
from bwbench.registry import COMPRESSIONS


def refusal(chain: Sequence[Component]) -> str | None:
    """Why a chain cannot be built; None where it can. Elements called ``none`` change nothing anywhere."""
    names = [component.name for component in chain if component.name != "none"]
    if len(names) > 1:
        return f"codecs cannot follow one another yet: {' + '.join(names)}; name one of them"
    return None


def build_codec(chain: Sequence[Component]) -> AbstractCodec:
    """A new codec for one bucket, wrapped in error feedback where it is biased and its options do not say otherwise.

    Raises ConfigError where the chain makes no sense.
    """
    reason = refusal(chain)
    if reason is not None:
        raise ConfigError(reason)
    for component in chain:
        if component.name != "none":
            codec: AbstractCodec = component.build(COMPRESSIONS)
            with_feedback = getattr(component.options, "error_feedback", codec.biased)
            return ErrorFeedback(codec) if with_feedback else codec
    return NoCompression()
