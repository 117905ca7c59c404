"""From the ``compression:`` key, a chain of components, to the codec that a bucket is sent with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bwbench.base.component import Component
from bwbench.base.errors import ConfigError
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.compression.codec import AbstractCodec
from bwbench.methods.compression.error_feedback import ErrorFeedback, residual_of


def chain_refusal(chain: Sequence[Component]) -> str | None:
    """Why a chain cannot be built; None where it can. Elements called ``none`` change nothing anywhere."""
    names = [component.name for component in chain if component.name != "none"]
    for name, following in zip(names, names[1:], strict=False):
        before, after = COMPRESSIONS.load(name), COMPRESSIONS.load(following)
        if not before.carries:
            carriers = ", ".join(other for other in COMPRESSIONS.names() if _carries(other))
            return (
                f"{following!r} cannot follow {name!r}, whose payload holds no fp32 values that another codec could "
                f"encode; codecs that others may follow: {carriers or 'none'}"
            )
        if after.linear or after.keeps_residual:
            return f"{following!r} cannot follow {name!r}: it works on whole gradients, from step to step; put it first"
        if before.linear and after.biased:
            return (
                f"{following!r} cannot follow {name!r}, whose messages are averaged on the way: what a biased codec "
                "loses there no residual would see"
            )
    return None


def nest(chain: Sequence[Component]) -> Any:
    """A new codec, bare of error feedback: the first of the chain, the second as its ``inner``, and so on.

    Raises ConfigError where the chain makes no sense.
    """
    reason = chain_refusal(chain)
    if reason is not None:
        raise ConfigError(reason)
    codec: Any = None
    for component in reversed([component for component in chain if component.name != "none"]):
        outer = component.build(COMPRESSIONS)
        outer.inner, codec = codec, outer
    return codec if codec is not None else COMPRESSIONS.load("none")()


def _carries(name: str) -> bool:
    try:
        return bool(COMPRESSIONS.load(name).carries)
    except Exception:  # a broken package is no suggestion
        return False


def build_codec(chain: Sequence[Component]) -> AbstractCodec:
    """A new codec for one bucket, wrapped in error feedback where it is biased and its options do not say otherwise.

    Each codec of the chain encodes the values that the one before it carries; one residual catches what all of them
    lose together. The option ``error_feedback`` is that of the first one. Raises ConfigError where the chain makes no
    sense.
    """
    return with_feedback(nest(chain))


def with_feedback(codec: AbstractCodec) -> AbstractCodec:
    """A bare codec as it is used: in error feedback where it is biased and its options do not say otherwise."""
    if codec.keeps_residual:
        return codec
    residual = residual_of(getattr(codec.options, "error_feedback", loses(codec)))
    return codec if residual is None else ErrorFeedback(codec, residual)


def loses(codec: AbstractCodec) -> bool:
    """Whether a codec, or one that encodes what it carries, loses something for good without error feedback."""
    return codec.biased or (codec.inner is not None and loses(codec.inner))
