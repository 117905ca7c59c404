"""N replicas in one process, the base of the reference methods, and the compressed averaging that several share.

The references are written from the published definitions by somebody who has not seen the program. Where the two
differ, docs/algorithms says how and why; the formulas here stay as they are.

Every method takes parameters[rank][tensor] (equal over the ranks at the start), keeps copies in
self.parameters[rank][tensor], and step(gradients) takes gradients[rank][tensor], computed by the caller at the
rank's present parameters. Steps are counted from 0 in self.steps_done unless a docstring says otherwise.
All sums run in rank order, in the dtype of the tensors given. self.lr may be changed between two steps.
`order` (indices into the tensors) is the order in which they are laid into one flat vector.
Other keywords go to the rule with which a replica uses the direction that it ends up with, see RULES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.references.rules import RULES, State, Tensors

Roundtrip = Callable[[Tensor], Tensor]
Cut = Callable[[int, int], list[tuple[int, int]]]


def mean(tensors: Tensors) -> Tensor:
    """Sum in the order of the list, then over its length."""
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total = total + tensor
    return total / len(tensors)


def scatter_gather(
    vectors: Tensors,
    cuts: list[tuple[int, int]],
    up: Roundtrip,
    down: Roundtrip,
    up_error: Tensors | None = None,
    down_error: Tensor | None = None,
    up_whole: bool = False,
) -> Tensor:
    """What all ranks hold after the compressed averaging of one vector a rank (Bagua; DeepSpeed 1-bit).

    p_i = x_i + e_i, sent c_i = up(p_i) chunk by chunk (or the whole vector at once: up_whole), e_i = p_i - c_i;
    the owner of a chunk: s = mean c_i + E, sent back d = down(s), E = s - d. The owner's own part is compressed
    too. Errors are changed in place; None: none kept. The parts of E lie at the owners, here in one vector.
    """
    sent = []
    for rank, vector in enumerate(vectors):
        wanted = vector if up_error is None else vector + up_error[rank]
        decoded = up(wanted) if up_whole else torch.cat([up(wanted[start:end]) for start, end in cuts])
        if up_error is not None:
            up_error[rank].copy_(wanted - decoded)
        sent.append(decoded)
    average = mean(sent)
    if down_error is not None:
        average = average + down_error
    result = torch.cat([down(average[start:end]) for start, end in cuts])
    if down_error is not None:
        down_error.copy_(average - result)
    return result


class Replicas:
    """N replicas, their optimizer states, and the way between tensors and one flat vector."""

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        order: list[int] | None = None,
        rule: str = "sgd",
        **rule_options: Any,
    ) -> None:
        """Copies the parameters; the rule's options are those of the function in RULES."""
        self.parameters = [[tensor.detach().clone() for tensor in tensors] for tensors in parameters]
        self.lr = lr
        self.order = list(range(len(parameters[0]))) if order is None else order
        self.rule, self.rule_options = RULES[rule], rule_options
        self.states: list[list[State]] = [[{} for _ in tensors] for tensors in parameters]
        self.steps_done = 0
        self.ranks = len(parameters)

    def flat(self, tensors: Tensors) -> Tensor:
        """One vector of the tensors in `order`."""
        return torch.cat([tensors[index].detach().reshape(-1) for index in self.order])

    def unflat(self, vector: Tensor) -> Tensors:
        """The tensors (in the parameters' own sequence) from one vector laid out in `order`."""
        out: Tensors = [torch.empty(0)] * len(self.order)
        start = 0
        for index in self.order:
            like = self.parameters[0][index]
            out[index] = vector[start : start + like.numel()].reshape(like.shape).clone()
            start += like.numel()
        return out

    def spans(self, per_tensor: bool) -> list[tuple[int, int]]:
        """(start, end) in the flat vector of what is compressed together: each tensor, or all."""
        ends, start = [], 0
        for index in self.order:
            ends.append((start, start + self.parameters[0][index].numel()))
            start = ends[-1][1]
        return ends if per_tensor else [(0, start)]

    def use(self, rank: int, direction: Tensors, lr: float | None = None) -> None:
        """The rule on every tensor of one rank."""
        rate = self.lr if lr is None else lr
        for index, tensor in enumerate(self.parameters[rank]):
            state = self.states[rank][index]
            self.parameters[rank][index] = self.rule(tensor, direction[index], state, rate, **self.rule_options)

    def use_everywhere(self, direction: Tensors, lr: float | None = None) -> None:
        """The rule with one direction on all ranks."""
        for rank in range(self.ranks):
            self.use(rank, direction, lr)

    def zeros(self) -> Tensor:
        """A flat vector of zeros."""
        return torch.zeros_like(self.flat(self.parameters[0]))
