"""Training that goes on from a checkpoint takes the same steps, to the last bit."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from bwbench import distribute
from bwbench.base.registry import ALGORITHMS
from bwbench.experiment.config.method_names import PRESETS
from bwbench.training.loop.muon import Muon
from tests.unit.training.library.together import batch, loss_of, small_model, together, values

NUM_RANKS = 4
BEFORE, AFTER = 5, 5

# What is rare by default happens in a few steps; each where the algorithm has such an option.
SHORT = {"period": 3, "overlap": 0, "warmup": 2, "fragments": 2}
OVERLAPPED = {"overlapped-local-sgd": 2, "streaming-diloco": 1}
# Results that depend on when a thread gets its turn; torch's DDP, which orders its sums anew after its first step; and
# what one process does alone.
NOT_REPEATABLE = ("async", "single", "torch", "deco-sgd")
WITHOUT_MOMENTUM = ("dgc", "dgc-int4", "ef-signsgd", "random-k", "cocktail-sgd", "demo")
METHODS = [name for name, preset in PRESETS.items() if not {*NOT_REPEATABLE} & {preset.algorithm, preset.collective}]
# One method of each algorithm: what is kept for the first step is no matter of collectives and codecs.
FIRST = list({PRESETS[name].algorithm: name for name in reversed(METHODS)}.values())


def spelling(name: str) -> Any:
    config = ALGORITHMS.load(PRESETS[name].algorithm).Config
    short = {**SHORT, "overlap": OVERLAPPED.get(name, 0)}
    known = {field.alias or key for key, field in config.model_fields.items()}
    return {name: {key: value for key, value in short.items() if key in known}}


def train(
    rank: int, name: str, num_steps: int, state: Any = None, others: int = 0, more: int = 0
) -> tuple[Any, torch.Tensor]:
    """A checkpoint after ``num_steps`` steps, and the parameters.

    Args:
        state: begin with it; otherwise from the beginning.
        others: steps taken before that, from a beginning of its own: loading has to forget them.
        more: steps taken after the checkpoint.
    """
    model = small_model(seed=0 if state is None else 7)
    known = ALGORITHMS.load(PRESETS[name].algorithm).optimizers
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.0 if name in WITHOUT_MOMENTUM else 0.9)
        if not known or "sgd" in known
        else (Muon if "muon" in known else torch.optim.Adam)(model.parameters(), lr=0.01)
    )
    first = 0
    with distribute(model, optimizer, spelling(name)) as handle:
        for step in range(others):
            one_step(rank, model, optimizer, 100 + step)
        if state is not None:
            loaded = torch.load(io.BytesIO(state), weights_only=True)
            first = loaded["step"]
            model.load_state_dict(loaded["model"])
            optimizer.load_state_dict(loaded["optimizer"])
            handle.load_state_dict(loaded["handle"])
        for step in range(first, first + num_steps):
            one_step(rank, model, optimizer, step)
        file = io.BytesIO()
        content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "handle": handle.state_dict()}
        torch.save(content | {"step": first + num_steps}, file)
        for step in range(first + num_steps, first + num_steps + more):
            one_step(rank, model, optimizer, step)
    return file.getvalue(), values(model)


def one_step(rank: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    loss_of(model, batch(rank, step)).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("method", METHODS)
def test_training_resumes_bit_exactly(method: str) -> None:
    found = together(NUM_RANKS, lambda rank: train(rank, method, BEFORE, more=AFTER))
    saved, whole = zip(*found, strict=True)
    assert not torch.equal(whole[0], values(small_model()))
    for others in (0, 2) if method in FIRST else (2,):
        resumed = together(NUM_RANKS, lambda rank: train(rank, method, AFTER, saved[rank], others)[1])  # noqa: B023
        for rank in range(NUM_RANKS):
            assert torch.equal(resumed[rank], whole[rank]), f"rank {rank}, {others} other steps before"


def test_the_state_of_another_rank_or_method_is_refused() -> None:
    def work(rank: int) -> None:
        model = small_model()
        with distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), "ring") as handle:
            state = handle.state_dict()
            for key, value in (("rank", rank + 1), ("world_size", 9), ("format", 0), ("method", {})):
                with pytest.raises(ValueError, match=f"the state is of {key} "):
                    handle.load_state_dict({**state, key: value})

    together(2, work)
