"""What a model must know about a data set, known before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CLASSIFICATION: Final = "classification"
LANGUAGE_MODELLING: Final = "language-modelling"
NOTHING: Final = "nothing"  # to be learnt: of a model of which only the shapes are real


@dataclass(frozen=True)
class DataSpec:
    """Shape of the inputs and meaning of the targets.

    Attributes:
        input_shape: of one sample, without the batch: ``(channels, height, width)`` of a picture, ``(context,)`` of a
            piece of text.
        num_classes: classes, or characters of the vocabulary. A model's last dimension.
        task: ``classification`` (one target a sample: logits ``[batch, num_classes]``) or ``language-modelling``
            (one target a position: inputs are character numbers, logits ``[batch, context, num_classes]``). Where
            there is ``nothing`` to learn, there are no samples.
    """

    input_shape: tuple[int, ...]
    num_classes: int
    task: str = CLASSIFICATION
