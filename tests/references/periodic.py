"""References for rounds of local steps: local SGD, DiLoCo, streaming DiLoCo, SparseLoCo."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.references.compressors import identity
from tests.references.replicas import Replicas, Roundtrip, mean
from tests.references.rules import Tensors


class LocalSGD(Replicas):
    """Local SGD (Stich 2018), post-local SGD (Lin 2020), delayed averaging (DaSGD).

    Steps t < warmup_steps (from 0) use the mean gradient. Later steps are local; after the update of step t the
    weights are averaged when s = t - warmup_steps >= first and (s - first) mod period = 0; first = None means
    period - 1, so after `period` local steps (torch's PeriodicModelAverager: first = 0).
    overlap tau: the mean of the weights x_t taken after step t arrives after the update of step t + tau:
    x <- mean x_t + (x - x_t). What is due arrives before the next weights are taken. Optimizer states stay local,
    or with average_state their tensors (momentum) are averaged where the weights are taken, at once (tau 0 only).
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        period: int,
        warmup_steps: int = 0,
        first: int | None = None,
        overlap: int = 0,
        average_state: bool = False,
        **options: Any,
    ) -> None:
        """`period` is H."""
        super().__init__(parameters, lr, **options)
        self.period, self.warmup_steps, self.overlap = period, warmup_steps, overlap
        self.first = period - 1 if first is None else first
        self.average_state = average_state
        self.travelling: list[tuple[int, Tensors]] = []

    def arrive(self, taken: Tensors) -> None:
        """x_i <- mean x_t + (x_i - x_t,i)."""
        average = mean(taken)
        for rank in range(self.ranks):
            # without overlap the bracket is exactly zero, so that the replicas are bit-equal
            now = self.flat(self.parameters[rank])
            self.parameters[rank] = self.unflat(average + (now - taken[rank]))

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        t = self.steps_done
        if t < self.warmup_steps:
            self.use_everywhere([mean([grads[index] for grads in gradients]) for index in range(len(gradients[0]))])
        else:
            for rank, grads in enumerate(gradients):
                self.use(rank, grads)
        while self.travelling and self.travelling[0][0] == t:
            self.arrive(self.travelling.pop(0)[1])
        since = t - self.warmup_steps
        if since >= self.first and (since - self.first) % self.period == 0:
            taken = [self.flat(tensors) for tensors in self.parameters]
            if self.overlap == 0:
                self.arrive(taken)
            else:
                self.travelling.append((t + self.overlap, taken))
            if self.average_state:
                self.average_states()
        self.steps_done += 1

    def average_states(self) -> None:
        """Every tensor in the optimizer states becomes its mean over the ranks."""
        for index in range(len(self.parameters[0])):
            for key, value in self.states[0][index].items():
                if isinstance(value, Tensor):
                    average = mean([self.states[rank][index][key] for rank in range(self.ranks)])
                    for rank in range(self.ranks):
                        self.states[rank][index][key] = average.clone()


class DiLoCo(Replicas):
    """DiLoCo (Douillard 2023): H local steps (inner rule), then an outer SGD step with D = mean roundtrip(ref - x_i).

    As torch's SGD: b <- mu b + D, b = 0 at first; nesterov: d = D + mu b, else d = b; ref <- ref - lr_o d;
    x_i <- ref. The outer step follows the inner update of
    step t (from 0) when (t + 1) mod H = 0. Inner optimizer states stay local and go on. The roundtrip takes the
    flat vector.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        period: int,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        nesterov: bool = True,
        roundtrip: Roundtrip = identity,
        **options: Any,
    ) -> None:
        """rule="adamw" with its options gives the published inner optimizer."""
        super().__init__(parameters, lr, **options)
        self.period, self.outer_lr, self.outer_momentum = period, outer_lr, outer_momentum
        self.nesterov, self.roundtrip = nesterov, roundtrip
        self.reference = self.flat(self.parameters[0])
        self.buffer = self.zeros()

    def average(self, changes: Tensors) -> Tensor:
        """The mean of what all ranks send; tests of ways back that are compressed, too, put theirs in its place."""
        return mean(changes)

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        for rank, grads in enumerate(gradients):
            self.use(rank, grads)
        self.steps_done += 1
        if self.steps_done % self.period == 0:
            change = self.average([self.roundtrip(self.reference - self.flat(tensors)) for tensors in self.parameters])
            self.buffer = self.outer_momentum * self.buffer + change
            d = change + self.outer_momentum * self.buffer if self.nesterov else self.buffer
            self.reference = self.reference - self.outer_lr * d
            self.parameters = [self.unflat(self.reference) for _ in range(self.ranks)]


class StreamingDiLoCo(Replicas):
    """Streaming DiLoCo (Douillard 2025): fragments of the flat vector, each with its own time, overlapped.

    Steps counted from 1. After the inner update of step t >= start, fragment p is sent when (t - offsets[p]) mod H = 0:
    D_i = ref_p - x_i,p. After the inner update of step t + overlap its mean arrives: outer step on ref_p (as DiLoCo,
    with a buffer of its own), then x_i,p <- mix x_i,p + (1 - mix) ref_p, x_i,p being the weights of that moment.
    ref_p is the shared weights after the last outer step of p, not the mixed weights of a rank (the paper's theta^(t-H)
    is not clear there; torchft reads it so). overlap < H. An offset 0 < o < H is first sent at step o, after less
    than H steps; start = H + 1 (or H) puts that off by a round.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        period: int,
        fragments: list[Tensor],
        offsets: list[int],
        overlap: int = 0,
        mix: float = 0.0,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        nesterov: bool = True,
        roundtrip: Roundtrip = identity,
        start: int = 1,
        **options: Any,
    ) -> None:
        """fragments[p] are indices into the flat vector; the roundtrip takes one fragment's difference."""
        super().__init__(parameters, lr, **options)
        if overlap >= period:
            raise ValueError("the overlap must be shorter than the period")
        self.period, self.fragments, self.offsets = period, fragments, offsets
        self.overlap, self.mix, self.roundtrip, self.start = overlap, mix, roundtrip, start
        self.outer_lr, self.outer_momentum, self.nesterov = outer_lr, outer_momentum, nesterov
        self.reference = self.flat(self.parameters[0])
        self.buffer = self.zeros()
        self.travelling: list[tuple[int, int, Tensor]] = []

    def average(self, changes: Tensors, part: int) -> Tensor:
        """The mean of what all ranks send; tests of ways back that are compressed, too, put theirs in its place."""
        return mean(changes)

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        for rank, grads in enumerate(gradients):
            self.use(rank, grads)
        self.steps_done += 1
        t = self.steps_done
        weights = [self.flat(tensors) for tensors in self.parameters]
        for part, (chosen, offset) in enumerate(zip(self.fragments, self.offsets, strict=True)):
            if t >= self.start and (t - offset) % self.period == 0:
                change = self.average(
                    [self.roundtrip(self.reference[chosen] - vector[chosen]) for vector in weights], part
                )
                self.travelling.append((t + self.overlap, part, change))
        for due, part, change in list(self.travelling):
            if due != t:
                continue
            chosen = self.fragments[part]
            self.buffer[chosen] = self.outer_momentum * self.buffer[chosen] + change
            d = change + self.outer_momentum * self.buffer[chosen] if self.nesterov else self.buffer[chosen]
            self.reference[chosen] = self.reference[chosen] - self.outer_lr * d
            for vector in weights:
                vector[chosen] = self.mix * vector[chosen] + (1 - self.mix) * self.reference[chosen]
        self.travelling = [item for item in self.travelling if item[0] != t]
        self.parameters = [self.unflat(vector) for vector in weights]


class SparseLoCo(Replicas):
    """SparseLoCo (Sarfi 2025): H local steps, D_i = ref - x_i, e_i <- beta e_i + D_i, q_i = Q(top-k of e_i),
    e_i <- e_i - q_i, ref <- ref - alpha mean q_i, x_i <- ref. No outer momentum.

    top-k in every chunk of `chunk` entries of the flat vector (per_tensor: chunks begin anew at each tensor); the last
    chunk is shorter and keeps min(k, its length). Q = roundtrip on the chosen values of a chunk in the order of
    their indices, or of all chunks together (quantise_chunk False). Averaging after step t (from 0), (t + 1) mod H = 0.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        period: int,
        k: int,
        chunk: int = 4096,
        beta: float = 0.95,
        alpha: float = 1.0,
        roundtrip: Roundtrip = identity,
        quantise_chunk: bool = True,
        per_tensor: bool = False,
        **options: Any,
    ) -> None:
        """`alpha` is the outer learning rate."""
        super().__init__(parameters, lr, **options)
        self.period, self.k, self.chunk, self.beta, self.alpha = period, k, chunk, beta, alpha
        self.roundtrip, self.quantise_chunk, self.per_tensor = roundtrip, quantise_chunk, per_tensor
        self.reference = self.flat(self.parameters[0])
        self.errors = [self.zeros() for _ in range(self.ranks)]
        self.sent: Tensors = []

    def compress(self, error: Tensor) -> Tensor:
        """Top-k by chunk, then the quantiser on what was chosen."""
        out = torch.zeros_like(error)
        everything = []
        for start, end in self.spans(self.per_tensor):
            for begin in range(start, end, self.chunk):
                part = error[begin : min(begin + self.chunk, end)]
                largest = torch.argsort(part.abs(), descending=True, stable=True)[: self.k]
                chosen = begin + torch.sort(largest).values
                everything.append(chosen)
                out[chosen] = self.roundtrip(error[chosen]) if self.quantise_chunk else error[chosen]
        if not self.quantise_chunk:
            chosen = torch.cat(everything)
            out[chosen] = self.roundtrip(error[chosen])
        return out

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        for rank, grads in enumerate(gradients):
            self.use(rank, grads)
        self.steps_done += 1
        if self.steps_done % self.period == 0:
            self.sent = []
            for rank, tensors in enumerate(self.parameters):
                self.errors[rank] = self.beta * self.errors[rank] + (self.reference - self.flat(tensors))
                self.sent.append(self.compress(self.errors[rank]))
                self.errors[rank] = self.errors[rank] - self.sent[rank]
            self.reference = self.reference - self.alpha * mean(self.sent)
            self.parameters = [self.unflat(self.reference) for _ in range(self.ranks)]
