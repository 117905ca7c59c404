"""Which gradients there are in a step of the user's loop: used, frozen, not finite, on this rank and on the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from bwbench.methods.algorithms import AbstractRunning
from bwbench.methods.algorithms.algorithm import NonFinite
from bwbench.training.library.step_message import Seen

_MOST_NAMED = 4  # findings of one step that are told; the others are counted
_DISTRIBUTE_ANEW = "on all ranks at the same point: handle.close(), then distribute(...) again"

_log = logging.getLogger("bwbench")


class HandleGradients:
    """The gradients of the parameters that were trainable when the handle was made, in the model's order.

    Attributes:
        used: parameters that would have a gradient in plain torch: those that a backward pass has reached since
            gradients were last cleared to None.
        nonfinite: which gradients of the last step were nan or infinite, and on which ranks; None where none were.
            Where gradients stay on their rank, those of other ranks since all last agreed, once they agree.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self._model, self._optimizer, self._parameters = model, optimizer, parameters
        own = self._own = {id(parameter) for parameter in parameters}
        self._frozen = [parameter for parameter in model.parameters() if id(parameter) not in own]
        self._names = [name for name, parameter in model.named_parameters() if id(parameter) in own]
        self.used: set[int] = set()
        self.nonfinite: str | None = None
        self._num_nonfinite_steps = 0
        self._noted: dict[int, int] = {}
        self._untold: dict[int, int] = {}  # found since ranks last agreed, in gradients that stay on this rank
        self._places: list[torch.Tensor | None] = [None] * len(parameters)  # gradients that nobody has put there

    def non_finite(self, parameter: int, kind: NonFinite) -> None:
        """What a method has found in the gradients of this rank; from any thread."""
        self._noted[parameter] = Seen.NAN if kind == "nan" else Seen.INF

    def cleared(self) -> None:
        """In plain torch all gradients would be None now."""
        self.used.clear()

    def cleared_by_hand(self, first: nn.Parameter) -> bool:
        """Whether all gradients were set to None without ``optimizer.zero_grad``, and ``first`` has just got a new one.

        That is how ``model.zero_grad()`` throws them away.
        """
        others = (parameter.grad for parameter in self._parameters if parameter is not first)
        place = next(place for p, place in zip(self._parameters, self._places, strict=True) if p is first)
        return first.grad is not place and all(gradient is None for gradient in others)

    def brought(self, first: nn.Parameter | None) -> list[nn.Parameter]:
        """Those that have got a gradient since all were zero: ``first`` in its backward pass, others by hand."""
        known = zip(self._parameters, self._places, strict=True)
        return [parameter for parameter, place in known if parameter is first or parameter.grad is not place]

    def check(self) -> None:
        """A step begins: see what was done to gradients by hand.

        Raises RuntimeError where the optimizer steps with a parameter that no other rank hears of.
        """
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and id(parameter) not in self._own:
                    raise RuntimeError(self._stranger(parameter))
        for index, parameter in enumerate(self._parameters):
            if parameter.grad is None:
                self.used.discard(index)
            elif parameter.grad is not self._places[index]:
                self.used.add(index)

    def placed(self) -> None:
        """What is there for a gradient now has been put there by the handle, or is known."""
        self._places = [parameter.grad for parameter in self._parameters]

    def seen(self) -> torch.Tensor:
        """``Seen`` of every parameter on this rank, uint8. What was noted is forgotten."""
        noted, self._noted = self._noted, {}
        seen = bytearray(Seen.TRAINED * parameter.requires_grad for parameter in self._parameters)
        for index in self.used:
            seen[index] |= Seen.USED
        for index, flags in noted.items():
            seen[index] |= flags
        return torch.frombuffer(seen, dtype=torch.uint8)

    def settle(self, everywhere: torch.Tensor, ranks: Sequence[int], step: int, running: AbstractRunning) -> None:
        """Make gradients what the optimizer is to see, equally on all ranks where they are averaged.

        Nothing but None moves a parameter that nobody has used, or that is frozen: weight decay and momenta do with a
        gradient of zero. What residuals of earlier steps have brought for it counts.

        Args:
            everywhere: ``Seen`` of every parameter on every rank: [ranks, parameters].
            ranks: whose rows these are.
            step: its number, for messages.

        Raises RuntimeError, on all of them, where ranks have frozen unlike parameters.
        """
        self._check_frozen(everywhere, ranks)
        self.nonfinite = self._found(everywhere, ranks)
        averaged = running.averages_gradients
        if self.nonfinite is not None:
            self._warn(f"step {step}", self.nonfinite)
            if not averaged:
                for index in (everywhere[0] & (Seen.NAN | Seen.INF)).nonzero().flatten().tolist():
                    self._untold[index] = self._untold.get(index, 0) | int(everywhere[0, index])
        union = _united(everywhere)
        as_usual = union == Seen.USED | Seen.TRAINED
        for index in [] if bool(as_usual.all()) else (~as_usual).nonzero().flatten().tolist():
            parameter, flags = self._parameters[index], int(union[index])
            if averaged and flags & (Seen.NAN | Seen.INF):
                value = torch.nan if flags & Seen.NAN else torch.inf
                parameter.grad = torch.empty_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad.fill_(value)
            elif not flags & Seen.TRAINED:
                parameter.grad = None
            elif not flags & Seen.USED and not (averaged and _brings_something(parameter.grad, running)):
                parameter.grad = None
        self.placed()

    def untold(self) -> torch.Tensor:
        """``Seen`` of what was not finite on this rank and that the others have not heard of, uint8; told from now."""
        untold, self._untold = self._untold, {}
        seen = torch.zeros(len(self._parameters), dtype=torch.uint8)
        for index, flags in untold.items():
            seen[index] = flags & (Seen.NAN | Seen.INF)
        return seen

    def hear(self, everywhere: torch.Tensor, rank: int, step: int) -> None:
        """Name what was not finite on other ranks since all last agreed, where gradients stay on their rank.

        Args:
            everywhere: what every rank has from ``untold``: [ranks, parameters].
            rank: this one, which has named its own.
            step: the last one.
        """
        others = everywhere.clone()
        others[rank] = 0
        found = self._found(others, range(len(others)))
        if found is not None:
            self.nonfinite = self._found(everywhere, range(len(everywhere)))
            self._warn(f"since ranks last agreed, up to step {step}", found)

    def _stranger(self, parameter: nn.Parameter) -> str:
        for name, other in self._model.named_parameters():
            if other is parameter:
                was_there = any(parameter is frozen for frozen in self._frozen)
                what = "requires a gradient now and did not" if was_there else "was not the model's yet"
                return f"parameter {name!r} {what} when distribute() was called; {_DISTRIBUTE_ANEW}"
        return (
            f"the optimizer has got a parameter of shape {tuple(parameter.shape)} that was not the model's when "
            f"distribute() was called; {_DISTRIBUTE_ANEW}"
        )

    def _check_frozen(self, everywhere: torch.Tensor, ranks: Sequence[int]) -> None:
        trained = (everywhere & Seen.TRAINED).bool()
        for index in (trained != trained[0]).any(0).nonzero().flatten().tolist():
            frozen = ", ".join(str(rank) for rank, flag in zip(ranks, trained[:, index], strict=True) if not flag)
            raise RuntimeError(
                f"parameter {self._names[index]!r} is frozen on rank {frozen} and not on the others; freeze the same "
                "parameters on all ranks before the same step"
            )

    def _found(self, everywhere: torch.Tensor, ranks: Sequence[int]) -> str | None:
        bad = everywhere & (Seen.NAN | Seen.INF)
        if not bool(bad.any()):
            return None

        def findings() -> Iterator[str]:
            for row, index in bad.nonzero().tolist():
                kind = "nan" if int(everywhere[row, index]) & Seen.NAN else "inf"
                yield f"the gradient of {self._names[index]} holds {kind} on rank {ranks[row]}"

        found = list(findings())
        more = [f"and {len(found) - _MOST_NAMED} more"] if len(found) > _MOST_NAMED else []
        return "; ".join(found[:_MOST_NAMED] + more)

    def _warn(self, when: str, found: str) -> None:
        """Ever more rarely: scalers meet an infinity now and then."""
        self._num_nonfinite_steps += 1
        if self._num_nonfinite_steps & (self._num_nonfinite_steps - 1) == 0:
            _log.warning("%s: %s (warning number %d of this kind)", when, found, self._num_nonfinite_steps)


def _united(everywhere: torch.Tensor) -> torch.Tensor:
    """What any rank has seen of each parameter."""
    union = everywhere[0].clone()
    for row in everywhere[1:]:
        union |= row
    return union


def _brings_something(gradient: torch.Tensor | None, running: AbstractRunning) -> bool:
    """Whether a mean that nobody has added to is more than what a codec makes of zeros: residuals have brought it."""
    return gradient is not None and bool(gradient.any()) and bool(running.sending_state())
