"""Writes the shapes of a model of one's own: ``python -m bwbench.training.models.write_shapes FILE:NAME [INPUT]``.

The model is made on torch's meta device, where tensors have shapes and no memory, so that a model of any size can be
looked at. What its layers compute is counted in a forward pass there, by torch's own counter, where an input is named;
else it is taken to be proportional to their parameters, which holds for layers that see every sample once.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bwbench.base.errors import BwbenchError, ConfigError
from bwbench.base.model_shapes import REFUSAL, Layer, ModelShapes, to_json
from bwbench.base.registry import load_plugin

_ROOT = "model"  # a name for what the model does beside its modules
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
    worked = _worked(model, target, input_shape, is_text=is_text) if input_shape else None
    layers = tuple(_layers(model, worked))
    if not any(layer.shapes for layer in layers):
        raise ConfigError(f"{target} has no parameter that is trained")
    return ModelShapes(name, layers)


Worked = list[tuple[str, float]]  # stretches of a forward pass: who works, by its name in the model, and how much


def _worked(model: nn.Module, target: str, input_shape: Sequence[int], *, is_text: bool) -> Worked:
    """Every stretch of a forward pass between two begins or ends of modules, and what the innermost one computes there,
    without what modules inside of it do. Together they are all that torch counts.
    """
    kind = torch.int64 if is_text else torch.float32
    sample = torch.zeros((1, *input_shape), dtype=kind, device="meta")
    counter = FlopCounterMode(display=False)
    worked, inside, counted = Worked(), list[str](), 0.0

    def until_now() -> None:
        nonlocal counted
        total = float(counter.get_total_flops())
        if inside:
            worked.append((inside[-1], total - counted))
        counted = total

    def begin(name: str) -> None:
        until_now()
        inside.append(name)
        worked.append((name, 0.0))

    def end() -> None:
        until_now()
        inside.pop()

    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda *_, name=name: begin(name)))
        hooks.append(module.register_forward_hook(lambda *_: end()))
    torch.backends.mha.set_fastpath_enabled(False)  # torch counts nothing of what it does in one piece
    try:
        with counter, torch.no_grad():
            model.eval()(sample)
    except Exception as error:
        text = f"{target} does not take an input of {tuple(sample.shape)}: {type(error).__name__}: {error}"
        raise ConfigError(f"{text}; name another with --input, or leave it out") from None
    for hook in hooks:
        hook.remove()
    return worked


def _layers(model: nn.Module, worked: Worked | None) -> Iterator[Layer]:
    """In the order of the forward pass; where nothing has been run in that of registration, by numbers of parameters.

    A module that works in several stretches, before and behind others that are inside of it, is as many layers: its own
    parameters are those of the first. Parameters of a module that is never called, because another one works with them,
    stand beside that one's.
    """
    modules = dict(model.named_modules())
    seen: set[int] = set()

    def own_shapes(name: str) -> tuple[tuple[int, ...], ...]:
        own = [p for p in modules[name].parameters(recurse=False) if p.requires_grad and id(p) not in seen]
        seen.update(map(id, own))
        return tuple(tuple(parameter.shape) for parameter in own)

    if worked is None:
        for name in modules:
            if shapes := own_shapes(name):
                yield Layer(name or _ROOT, shapes, float(sum(map(math.prod, shapes))))
        return
    called = {name for name, _ in worked}
    used_by: dict[str, list[str]] = {}
    for name in modules.keys() - called:
        above = name
        while above not in called:
            above = above.rpartition(".")[0]
        used_by.setdefault(above, []).append(name)
    met: set[str] = set()
    for name, stretches in groupby(worked, key=lambda stretch: stretch[0]):
        work = sum(of_stretch for _, of_stretch in stretches)
        shapes = own_shapes(name)
        if shapes or work:
            yield Layer(name or _ROOT, shapes, work)
        if name not in met:
            met.add(name)
            for other in (one for one in modules if one in used_by.get(name, ())):  # as they are registered
                if shapes := own_shapes(other):
                    yield Layer(other, shapes, 0.0)


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
