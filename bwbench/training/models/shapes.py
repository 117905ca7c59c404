"""The shapes of a real model in place of the model: every gradient appears when it would, and nothing is learnt.

Codecs, buckets, overlap, collectives and links work with it as with any model. A backward pass gives the gradients of a
layer once the layers behind it and itself have had their share of the pass, of a step whose duration is declared.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.data_spec import NOTHING, DataSpec
from bwbench.base.errors import ConfigError
from bwbench.base.model_shapes import ModelShapes, read_shapes
from bwbench.base.published_models import PUBLISHED, published_model
from bwbench.methods.deferred import nn
from bwbench.training.models.model import AbstractModel

BACKWARD_SHARE = 2 / 3  # of a step: a backward pass computes twice what a forward pass does


class ShapesConfig(ComponentConfig):
    """Options of ``shapes``.

    Attributes:
        of: whose shapes: a published model's, or those in a file that 'bwbench shapes' has written.
        backward: share of the declared step that the backward pass takes.
        decay: how fast the singular values of a gradient fall: the i-th is i to the power of minus this; 0 is white
            noise, which nothing compresses.
        tail: how heavy the tails of its entries are: standard deviation of the logarithm of their scales by row and by
            column; 0 is nearly normal.
        norm: length of the whole gradient.
        sha256: of the file's content, filled in when it is read.
    """

    of: str = Field("vgg16", min_length=1)
    backward: float = Field(BACKWARD_SHARE, gt=0, le=1)
    decay: float = Field(1.0, ge=0, le=4)
    tail: float = Field(0.5, ge=0, le=2)
    norm: float = Field(1.0, gt=0, le=1e6)
    sha256: str | None = None


class Shapes(AbstractModel):
    """A model of which only the shapes are real; as large as the one that it names."""

    Config: ClassVar[type[ComponentConfig]] = ShapesConfig
    name: ClassVar[str] = "shapes"
    tasks: ClassVar[tuple[str, ...]] = (NOTHING,)
    only_shapes: ClassVar[bool] = True
    reference_spec: ClassVar[DataSpec] = DataSpec((0,), 1, NOTHING)
    options: ShapesConfig

    def shapes(self) -> ModelShapes:
        """Its layers. Raises ConfigError where there are none of this name, or the file is not as it was."""
        if self.options.of in PUBLISHED:
            return published_model(self.options.of)
        path = Path(self.options.of)
        if not path.is_file():
            raise ConfigError(
                f"there are no shapes of {self.options.of!r}. Known: {', '.join(PUBLISHED)}; or name a file that "
                "'bwbench shapes my_model.py:Model' has written"
            )
        model, digest = read_shapes(path)
        if self.options.sha256 not in (None, digest):
            raise ConfigError(f"{path} is not what it was when the experiment was planned; plan it again")
        return model

    def _build(self, spec: DataSpec) -> nn.Module:
        from bwbench.training.models.shapes_module import ShapesModule  # it is torch's, and plans have none

        return ShapesModule(self.shapes(), self.options)
