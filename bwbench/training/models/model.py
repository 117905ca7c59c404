"""What every model offers: which tasks it can do, and a torch module for a data set's shape."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from bwbench.base.component import ComponentConfig
from bwbench.base.data_spec import CLASSIFICATION, DataSpec
from bwbench.base.errors import ConfigError
from bwbench.base.model_shapes import ModelShapes
from bwbench.methods.deferred import nn


class AbstractModel(ABC):
    """A model, described by its class and its options; torch is imported in ``build`` alone.

    Attributes:
        Config: the options' class.
        name: as in the registry, for messages.
        tasks: what it can learn: ``classification``, ``language-modelling``.
        reference_spec: the data that its documented size is stated for.
        only_shapes: it learns nothing, and ``shapes`` says of which layers it is.
        parameter_range: lowest and highest number of parameters there, with default options.
    """

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    name: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]] = (CLASSIFICATION,)
    reference_spec: ClassVar[DataSpec] = DataSpec((1, 28, 28), 10)
    only_shapes: ClassVar[bool] = False
    parameter_range: ClassVar[tuple[int, int]]

    def __init__(self, options: ComponentConfig) -> None:
        self.options = options

    def check(self, spec: DataSpec) -> None:
        """Raise ConfigError where this model cannot learn such data; imports no torch."""
        if spec.task not in self.tasks:
            raise ConfigError(
                f"model {self.name!r} does {' and '.join(self.tasks)}; the data set is for {spec.task}. "
                f"Choose another model or another data set"
            )

    def shapes(self) -> ModelShapes | None:
        """The layers of a model of which only the shapes are real, and which learns nothing; None of all others. Pure.

        Raises ConfigError where there are none.
        """
        return None

    def build(self, spec: DataSpec) -> nn.Module:
        """A freshly initialised module, from torch's global random state.

        It maps a batch ``[batch, *spec.input_shape]`` to logits ``[batch, num_classes]``, or
        ``[batch, context, num_classes]`` where the task is language modelling. It has no buffers that training
        changes. Raises ConfigError where the model cannot learn such data.
        """
        self.check(spec)
        return self._build(spec)

    @abstractmethod
    def _build(self, spec: DataSpec) -> nn.Module:
        """As ``build``, for data that has been checked."""


class AbstractPictureModel(AbstractModel):
    """A model that needs pictures ``(channels, height, width)``, at least ``min_side`` pixels high and wide."""

    min_side: ClassVar[int]

    def check(self, spec: DataSpec) -> None:
        """As in AbstractModel; the inputs must also be pictures that are large enough."""
        super().check(spec)
        if len(spec.input_shape) != 3 or min(spec.input_shape[1:]) < self.min_side:
            raise ConfigError(
                f"model {self.name!r} needs pictures (channels, height, width) of at least "
                f"{self.min_side}x{self.min_side}; the data set's samples have the shape {spec.input_shape}. "
                f"'mlp' and 'logistic' take any shape"
            )
