"""Shapes of a model: what its layers hold and how much of a step each computes, without any value. Imports no torch.

That is all a training has to know of a model of which only the step time is asked: which gradients there are, in which
order and when they appear. The lists of published models are made in ``published_models.py``; ``read_shapes`` reads one
of your own, as ``bwbench shapes`` writes it.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from bwbench.base.errors import ConfigError
from bwbench.base.explain import show
from bwbench.base.plain_data import Json

Shape: TypeAlias = tuple[int, ...]
FORMAT = "bwbench_shapes"  # key that such a file begins with, and the version of its format
VERSION = 1
REFUSAL = "bwbench-shapes: "  # begins what is wrong, behind whatever the file of a model prints while it is looked at
MAX_FILE_BYTES = 16 * 2**20
MOST_PARAMETERS = 10**12  # of a model, and so of each of its tensors
MOST_WORK = 1e30  # of a layer: all of them together are still a number
ELEMENT_BYTES = 4  # fp32
# Of the pattern of a synthetic gradient: larger tensors repeat it row by row, which adds no rank and costs no memory.
TILE_ELEMENTS = 2**20
SHRINK_TOLERANCE = 0.01  # of S, by which dividing the shapes may miss it: whole numbers do not divide evenly


@dataclass(frozen=True)
class Layer:
    """What belongs together in a backward pass: its gradients appear at the same moment.

    Attributes:
        shapes: of its parameter tensors; empty where it computes and has none of its own.
        work: what it computes, in any unit; only shares count.
    """

    name: str
    shapes: tuple[Shape, ...]
    work: float

    @property
    def num_parameters(self) -> int:
        """Values in all its tensors."""
        return sum(math.prod(shape) for shape in self.shapes)


@dataclass(frozen=True)
class ModelShapes:
    """A model as a list of layers, in the order of the forward pass."""

    name: str
    layers: tuple[Layer, ...]

    @property
    def num_parameters(self) -> int:
        """Values that are trained."""
        return sum(layer.num_parameters for layer in self.layers)

    @property
    def parameter_shapes(self) -> tuple[Shape, ...]:
        """Of each parameter tensor, in the model's order."""
        return tuple(shape for layer in self.layers for shape in layer.shapes)

    @property
    def backward_ends(self) -> tuple[float, ...]:
        """When each layer's gradients are there, as a share of the backward pass, which takes the last layer first."""
        total = sum(layer.work for layer in self.layers)
        ends, done = [], 0.0
        for layer in reversed(self.layers):
            done += layer.work
            ends.append(min(1.0, done / total))
        return tuple(reversed(ends))

    def shrunk(self, factor: float) -> ModelShapes:
        """Every tensor with one dimension, the first where it can be, divided by ``factor``; the work as it is.

        Raises ConfigError where that misses the size by more than 1 %.
        """
        if factor == 1:
            return self
        layers = tuple(
            replace(layer, shapes=tuple(_divided(shape, factor) for shape in layer.shapes)) for layer in self.layers
        )
        made = replace(self, layers=layers)
        wanted = self.num_parameters / factor
        if abs(made.num_parameters - wanted) > SHRINK_TOLERANCE * wanted:
            raise ConfigError(
                f"{self.name} shrunk by {factor:g} has {made.num_parameters:,} parameters, which is not "
                f"{self.num_parameters:,} / {factor:g} within 1 %; shrink it less"
            )
        return made


def pattern_shape(shape: Shape) -> tuple[int, int]:
    """Rows and columns of the pattern that a synthetic gradient of this shape is made of."""
    rows, cols = (shape[0], math.prod(shape[1:])) if shape else (1, 1)
    return min(rows, max(1, TILE_ELEMENTS // cols)), cols


def _divided(shape: Shape, factor: float) -> Shape:
    if not shape:
        return shape
    # The first dimension that can be divided, so that what a row holds stays; else the largest.
    place = next((place for place, size in enumerate(shape) if size >= factor), shape.index(max(shape)))
    return (*shape[:place], max(1, round(shape[place] / factor)), *shape[place + 1 :])


def read_shapes(path: Path) -> tuple[ModelShapes, str]:
    """The model in a file, and the SHA-256 of what it says.

    Raises ConfigError where it cannot be read or is no list of layers, which says where.
    """
    try:
        if not path.is_file():
            raise ConfigError(f"{show(str(path))} is not a file")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: more than {MAX_FILE_BYTES // 2**20} MiB is no list of shapes")
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(f"{path}{where}: is not JSON ({_first_line(error)}); {_HOW}") from None
    model = _model(content, path)
    plain = [[layer.name, layer.shapes, layer.work] for layer in model.layers]
    return model, hashlib.sha256(json.dumps([model.name, plain]).encode()).hexdigest()


def to_json(model: ModelShapes) -> Json:
    """What such a file holds."""
    layers: list[Json] = [
        {"name": layer.name, "shapes": [list(shape) for shape in layer.shapes], "backward": layer.work}
        for layer in model.layers
    ]
    return {FORMAT: VERSION, "name": model.name, "layers": layers}


_HOW = "'bwbench shapes my_model.py:Model' writes such a file"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _model(content: Json, path: Path) -> ModelShapes:
    if not isinstance(content, dict) or FORMAT not in content:
        raise ConfigError(f"{path}: is no list of a model's shapes, which begins with {FORMAT!r}; {_HOW}")
    if content[FORMAT] != VERSION:
        text = f"{path}: {FORMAT} is {show(content[FORMAT])}, and this version reads {VERSION}"
        raise ConfigError(f"{text}; write it again with 'bwbench shapes'")
    name, layers = content.get("name"), content.get("layers")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{path}: name: {show(name)} is not the name of a model")
    if not isinstance(layers, list) or not layers:
        raise ConfigError(f"{path}: layers: {show(layers)} is no list of layers")
    model = ModelShapes(name, tuple(_layer(layer, f"{path}: layers[{i}]") for i, layer in enumerate(layers)))
    if not 0 < model.num_parameters <= MOST_PARAMETERS:
        raise ConfigError(f"{path}: {model.num_parameters:,} parameters are out of range: 1 to {MOST_PARAMETERS:,}")
    if sum(layer.work for layer in model.layers) <= 0:
        raise ConfigError(f"{path}: layers: 'backward' is 0 for all of them; write what share of the pass each takes")
    return model


def _layer(content: Json, where: str) -> Layer:
    if not isinstance(content, dict):
        raise ConfigError(f"{where}: {show(content)} is not a layer, {{name: …, shapes: [[…]], backward: …}}")
    if unknown := sorted(set(content) - {"name", "shapes", "backward"}):
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; a layer has name, shapes and backward")
    name, shapes, work = content.get("name"), content.get("shapes"), content.get("backward")
    if not isinstance(name, str):
        raise ConfigError(f"{where}.name: {show(name)} is not text")
    if isinstance(work, bool) or not isinstance(work, (int, float)) or not 0 <= work <= MOST_WORK:
        raise ConfigError(f"{where}.backward: {show(work)} is not a number of 0 or more, at most {MOST_WORK:g}")
    if not isinstance(shapes, list):
        raise ConfigError(f"{where}.shapes: {show(shapes)} is not a list of shapes like [[64, 3, 3, 3], [64]]")
    found = []
    for index, shape in enumerate(shapes):
        if not isinstance(shape, list) or not all(_is_size(size) for size in shape):
            raise ConfigError(f"{where}.shapes[{index}]: {show(shape)} is no shape, a list of whole numbers above 0")
        sizes = tuple(size for size in shape if isinstance(size, int))
        if math.prod(sizes) > MOST_PARAMETERS:
            text = f"{where}.shapes[{index}]: {show(shape)} has more values than a model may have"
            raise ConfigError(f"{text}, {MOST_PARAMETERS:,}")
        found.append(sizes)
    return Layer(name, tuple(found), float(work))


def _is_size(size: Json) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size > 0
