"""Keeps torch's compiler out of workers, which never compile: importing it takes as long as importing torch itself.

torch's optimizers import ``torch._dynamo`` the first time one is made or takes a step, to tell the compiler what to
leave alone. With four workers on two cores that is two to three seconds of every cell. The wrappers that import it are
taken off here; what they wrap is unchanged. Where a version of torch is built otherwise nothing is touched, and starts
take longer.
"""

from __future__ import annotations

from typing import Any

import torch


def leave_compiler_out() -> None:
    """Take the compiler's wrappers off the optimizers of this process. Safe to call twice."""
    base: Any = torch.optim.Optimizer
    for name, function in list(vars(base).items()):
        plain = _unwrapped(function, "inner")
        if plain is not function:
            setattr(base, name, plain)
    for optimizer in (torch.optim.SGD, torch.optim.Adam):  # AdamW is an Adam
        _take_off_step(optimizer)


def _take_off_step(optimizer: Any) -> None:
    plain = _unwrapped(optimizer.step, "_use_grad")
    if plain is not optimizer.step:
        optimizer.step = torch.no_grad()(plain)  # the other thing that the wrapper does


def _unwrapped(function: Any, wrapper: str) -> Any:
    """What ``function`` wraps where it is that wrapper, else ``function`` itself."""
    is_wrapper = getattr(getattr(function, "__code__", None), "co_name", None) == wrapper
    return getattr(function, "__wrapped__", function) if is_wrapper else function
