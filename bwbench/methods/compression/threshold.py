"""Only the entries above a threshold; the rest is kept back by error feedback."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.base.component import ComponentConfig
from bwbench.methods.compression.sparse import AbstractSparseCodec, at_least, bits_of, largest
from bwbench.methods.deferred import np

DEFAULT_QUANTILE = 0.99
ABSOLUTE_DENSITY = 0.01  # assumed by the estimate for a threshold in absolute terms, whose density only training shows


class ThresholdConfig(ComponentConfig):
    """Options of ``threshold``: ``value`` or ``quantile``, not both.

    Attributes:
        value: entries with ``|x| >= value`` are sent. The share that this makes differs from model to model and falls
            while the gradient shrinks; error feedback lets small entries add up until they cross it.
        quantile: the threshold is this quantile of ``|x|``, found anew for each tensor and step. The default, 0.99,
            sends 1 % of each bucket whatever the model, the layer and the stage of training are, so that the bytes of
            a step are known in advance; published sparsifiers with error feedback keep their accuracy there.
        error_feedback: keep what is not sent and add it to the next step's gradient.
    """

    value: float | None = Field(None, gt=0.0, allow_inf_nan=False)
    quantile: float | None = Field(None, gt=0.0, lt=1.0)
    error_feedback: bool = True

    @model_validator(mode="before")
    @classmethod
    def _one_threshold(cls, options: Any) -> Any:
        if not isinstance(options, dict):
            return options
        value, quantile = options.get("value"), options.get("quantile")
        if value is not None and quantile is not None:
            raise PydanticCustomError("threshold", "give either value or quantile, not both")
        if value is None and quantile is None:
            options = {**options, "quantile": DEFAULT_QUANTILE}
        return options


class Threshold(AbstractSparseCodec):
    """Sends what is at least as large as the threshold and not zero. NaN counts as large, so that it is seen.

    A quantile is found by way of a sample (``largest``): no whole tensor is sorted, and the share that is
    sent lies at most 10 % below the one asked for. Entries as large as the quantile itself are all sent.
    """

    Config = ThresholdConfig
    options: ThresholdConfig

    def _expected_entries(self, num_elements: int) -> int:
        quantile = self.options.quantile
        return round((ABSOLUTE_DENSITY if quantile is None else 1.0 - quantile) * num_elements)

    def _selected(self, x: np.ndarray) -> np.ndarray:
        if self.options.quantile is None or len(x) == 0:
            return at_least(x, bits_of(self.options.value or 1.0))
        return largest(x, max(1, round((1.0 - self.options.quantile) * len(x))))
