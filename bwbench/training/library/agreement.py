"""Whether all ranks are about to train the same: compared before anything else is sent.

Ranks send 32 bytes. Only where these differ do they tell each other what they have, so that all of them raise the same
error at once, with the rank and the parameter in it. A rank that has found something wrong by itself says so in the
same exchange, in place of leaving the others to wait for it.
"""

from __future__ import annotations

import hashlib
import json
import numbers
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.base.plain_data import JsonObject
from bwbench.methods.buffers import bytes_of
from bwbench.training.library.method import Method

# What a rank has: facts by subject, {"parameter '0.weight'": {"shape": [40, 12], …}}. Their order counts as well.
Description = dict[str, JsonObject]
T = TypeVar("T")

MOST_SAID = 4  # differences in one message
_PROBLEM = "problem"  # the subject of a rank that cannot train
_COMPILED = "_orig_mod."  # torch.compile puts it into names, and changes nothing else


def prepared_alike(group: dist.ProcessGroup, prepare: Callable[[], tuple[T, Description]]) -> T:
    """What ``prepare`` made on this rank, once all ranks have made it of the same things. Collective.

    Args:
        prepare: works on this rank alone; what it raises is told to the others.

    Raises:
        ConfigError: on all ranks, with the same text: ranks differ, or one of them cannot go on.
        Exception: what ``prepare`` raised, where that is the same on all ranks.
    """
    problem: Exception | None = None
    try:
        prepared, own = prepare()
    except Exception as error:
        problem, own = error, {_PROBLEM: {"text": _one_line(error)}}
    written = json.dumps(own).encode()
    digests = gathered(group, hashlib.sha256(written).digest())
    if len(set(digests)) > 1:
        descriptions = told_by_all(own, group)
        raise ConfigError(what_differs(descriptions)) from problem
    if problem is not None:
        raise problem
    return prepared


def describe(model: nn.Module, optimizer: torch.optim.Optimizer, method: Method) -> Description:
    """Everything that has to be the same on all ranks, but for values of parameters and buffers."""
    stepped_by = {id(p): number for number, group in enumerate(optimizer.param_groups) for p in group["params"]}
    found: Description = {}
    for name, parameter in model.named_parameters():
        facts = _facts(parameter) | {"requires_grad": parameter.requires_grad}
        found[f"parameter '{name.replace(_COMPILED, '')}'"] = facts | {"optimizer group": stepped_by.get(id(parameter))}
    for name, buffer in model.named_buffers():
        found[f"buffer '{name.replace(_COMPILED, '')}'"] = _facts(buffer)
    found["algorithm"], found["collective"] = method.algorithm.to_json(), method.collective.to_json()
    for number, codec in enumerate(method.compression):
        found[f"compression {number}"] = codec.to_json()
    # Another state, as after a checkpoint that one rank alone has loaded, would take other steps.
    state = "from earlier steps" if optimizer.state else "none"
    found["the optimizer"] = {"name": type(optimizer).__name__, "state": state}
    for number, group in enumerate(optimizer.param_groups):
        found[f"optimizer group {number}"] = _plain_options(group)
    return found


def what_differs(descriptions: Sequence[Description]) -> str:
    """One line about the ranks that cannot train; where all can, about those that differ from rank 0."""
    problems = _by_text(
        (rank, [str(own[_PROBLEM]["text"])]) for rank, own in enumerate(descriptions) if _PROBLEM in own
    )
    if problems:
        return problems
    found = _by_text((rank, differences(own, descriptions[0])) for rank, own in enumerate(descriptions))
    return f"{found}; all ranks need the same model, optimizer and method"


def differences(own: Description, first: Description) -> list[str]:
    """What is different on a rank, compared with rank 0, in words."""
    found = [f"{subject} is missing, rank 0 has it" for subject in first if subject not in own]
    for subject, facts in own.items():
        if subject not in first:
            found.append(f"{subject} is there, rank 0 has none")
            continue
        others = first[subject]
        unequal = [fact for fact in {**facts, **others} if facts.get(fact) != others.get(fact)]
        # Under another name there are other options, of which nobody needs to hear.
        for fact in ["name"] if "name" in unequal else unequal:
            found.append(f"{subject} has {fact} {facts.get(fact)!r}, rank 0 has {others.get(fact)!r}")
    if not found:
        found = [f"{b} stands where rank 0 has {a}" for a, b in zip(first, own, strict=True) if a != b][:1]
    return found


def gathered(group: dist.ProcessGroup, own: bytes) -> list[bytes]:
    """The bytes of all ranks, equally many on each. Collective."""
    if group.size() == 1:
        return [own]
    sent = torch.frombuffer(bytearray(own), dtype=torch.uint8)
    received = [torch.empty_like(sent) for _ in range(group.size())]
    group.allgather([received], [sent]).wait()
    return [bytes_of(each) for each in received]


def gathered_of_any_length(group: dist.ProcessGroup, own: bytes) -> list[bytes]:
    """The bytes of all ranks. Lengths come first: gloo aborts a process whose buffer is too small. Collective."""
    lengths = [int.from_bytes(each, "big") for each in gathered(group, len(own).to_bytes(8, "big"))]
    padded = gathered(group, own.ljust(max(lengths)))
    return [each[:length] for each, length in zip(padded, lengths, strict=True)]


def _facts(tensor: torch.Tensor) -> JsonObject:
    """Of a parameter or a buffer. Strides where they are not the usual ones: buckets hold values as they lie."""
    facts: JsonObject = {"shape": list(tensor.shape), "type": str(tensor.dtype).removeprefix("torch.")}
    facts["device"] = tensor.device.type
    return facts if tensor.is_contiguous() else facts | {"strides": list(tensor.stride())}


def _plain_options(group: dict[str, object]) -> JsonObject:
    """The options of a parameter group that are numbers, words or sequences of these; others are not compared."""
    found: JsonObject = {}
    for option, value in group.items():
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        if isinstance(value, (tuple, list)) and option != "params":
            found[option] = [str(each) for each in value]
        elif value is None or isinstance(value, (bool, int, float, str)):
            found[option] = value
        elif isinstance(value, numbers.Real):  # numpy's
            found[option] = float(value)
    return found


def _by_text(said: Iterable[tuple[int, Sequence[str]]]) -> str:
    """Sentences with the ranks that they are true of: "ranks 1 and 2: …; rank 3: …"."""
    ranks: dict[str, list[int]] = {}
    for rank, sentences in said:
        for sentence in sentences:
            ranks.setdefault(sentence, []).append(rank)
    listed = [f"{_named(of)}: {sentence}" for sentence, of in ranks.items()]
    more = [f"and {len(listed) - MOST_SAID} more"] if len(listed) > MOST_SAID else []
    return "; ".join([*listed[:MOST_SAID], *more])


def _named(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split("\n"))
    return text if isinstance(error, ConfigError) else f"{type(error).__name__}: {text}"


def told_by_all(own: object, group: dist.ProcessGroup) -> list[Any]:
    """What all ranks say, plain data, by rank. Collective."""
    return [json.loads(each) for each in gathered_of_any_length(group, json.dumps(own).encode())]
