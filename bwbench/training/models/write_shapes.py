"""Writes the shapes of a model of one's own: ``python -m bwbench.training.models.write_shapes FILE:NAME [INPUT]``.

The model is made on torch's meta device, where tensors have shapes and no memory, so that a model of any size can be
looked at. What its layers compute is counted in a forward pass there, by torch's own counter, where an input is named;
else it is taken to be proportional to their parameters, which holds for layers that see every sample once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bwbench.base.errors import BwbenchError, ConfigError
from bwbench.base.model_shapes import REFUSAL, Layer, ModelShapes, to_json
from bwbench.base.registry import load_plugin

_FORM = "write it as my_model.py:Model, where Model is a class or a function that takes no arguments"


def shapes_of(target: str, input_shape: Sequence[int] = (), *, is_text: bool = False) -> ModelShapes:
    """The layers of the model that ``FILE:NAME`` makes.

    Args:
        input_shape: of one sample, without the batch; empty where nothing is to be run.
        is_text: its values are whole numbers, as of tokens.

    Raises:
        ConfigError: there is no such model, it cannot be made, or does not take such an input.
    """
    file, colon, name = target.rpartition(":")
    if not colon or not file or not name:
        raise ConfigError(f"{target!r} names no model; {_FORM}")
    load_plugin(Path(file))  # which says what is wrong with a file
    (module,) = (
        one for one in list(sys.modules.values()) if getattr(one, "__file__", None) == str(Path(file).resolve())
    )
    made = getattr(module, name, None)
    if made is None:
        raise ConfigError(f"{file} has no {name!r}; {_FORM}")
    try:
        with torch.device("meta"):
            model = made if isinstance(made, nn.Module) else made()
    except Exception as error:
        text = f"{target} cannot be made on the meta device: {type(error).__name__}: {error}"
        raise ConfigError(f"{text}; {_FORM}") from None
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{target} gives {type(model).__name__}, which is no torch module; {_FORM}")
    counts = _counted(model, target, input_shape, is_text=is_text) if input_shape else {}
    layers = tuple(_layers(model, counts))
    if not layers:
        raise ConfigError(f"{target} has no parameter that is trained")
    return ModelShapes(name, layers)


def _counted(model: nn.Module, target: str, input_shape: Sequence[int], *, is_text: bool) -> dict[str, float]:
    """What each module computes in a forward pass, those inside included, by its name in the model."""
    kind = torch.int64 if is_text else torch.float32
    sample = torch.zeros((1, *input_shape), dtype=kind, device="meta")
    counter = FlopCounterMode(display=False)
    try:
        with counter, torch.no_grad():
            model.eval()(sample)
    except Exception as error:
        text = f"{target} does not take an input of {tuple(sample.shape)}: {type(error).__name__}: {error}"
        raise ConfigError(f"{text}; name another with --input, or leave it out") from None
    root = type(model).__name__
    return {
        name.removeprefix(f"{root}."): float(sum(of_operators.values()))
        for name, of_operators in counter.get_flop_counts().items()
    }


def _layers(model: nn.Module, counts: dict[str, float]) -> Iterator[Layer]:
    seen: set[int] = set()
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if p.requires_grad and id(p) not in seen]
        seen |= {id(parameter) for parameter in own}
        computes = not list(module.children()) and counts.get(name, 0.0) > 0
        if not own and not computes:
            continue
        work = counts.get(name, 0.0) - sum(
            counts.get(f"{name}.{child}" if name else child, 0.0) for child, _ in module.named_children()
        )
        if not counts:
            work = float(sum(parameter.numel() for parameter in own))
        yield Layer(name or "model", tuple(tuple(parameter.shape) for parameter in own), max(0.0, work))


def main(arguments: Sequence[str]) -> int:
    """Print the file's content; what is wrong goes to stderr, in words."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever the model's file prints
    target, *rest = arguments
    text = rest[0] if rest else ""
    try:
        sizes = [int(size) for size in text.removeprefix("tokens:").split(",") if size]
        model = shapes_of(target, sizes, is_text=text.startswith("tokens:"))
    except BwbenchError as error:
        print(f"{REFUSAL}{error}", file=sys.stderr)
        return error.exit_code
    content: Any = to_json(model)
    with answer:
        json.dump(content, answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
