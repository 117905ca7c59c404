"""Deep gradient compression: the largest entries of a momentum that each rank keeps for itself."""

from __future__ import annotations

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.buffers import array_of, tensor_of
from bwbench.methods.compression.codec import AbstractCodec, as_flat_fp32
from bwbench.methods.compression.sparse import AbstractSparseCodec, entries_at, top_k
from bwbench.methods.deferred import np, torch

WARMUP_RATIO = 0.25  # share that is sent at the beginning of the warm-up, as in the paper


class DgcConfig(ComponentConfig):
    """Options of ``dgc``.

    Attributes:
        ratio: share of the entries of each tensor (bucket) that is sent; at least one is.
        momentum: takes the place of the optimizer's, which has to be 0.
        clip_norm: each gradient (of one rank, one bucket) is scaled down to this norm where it is larger, before it is
            accumulated; None leaves it. The paper's: that of the averaged gradient divided by the square root of the
            number of nodes.
        warmup_steps: exchanges in which the share that is sent falls exponentially, from a quarter to ``ratio``.
    """

    ratio: float = Field(0.01, gt=0.0, le=1.0)
    momentum: float = Field(0.9, ge=0.0, lt=1.0)
    clip_norm: float | None = Field(None, gt=0.0)
    warmup_steps: int = Field(0, ge=0)


class Dgc(AbstractSparseCodec):
    """Momentum correction, local clipping, momentum factor masking and sparsity warm-up, after Lin et al. 2018 (DGC).

    With a gradient g: u = momentum * u + g, v = v + u; the largest entries of v are sent and set to zero in u and v.
    What is left out stays in v, so no error feedback wraps this codec; what ``inner`` rounds away stays there as well.
    """

    Config = DgcConfig
    keeps_residual = True
    kept_copies = 2.0
    options: DgcConfig

    _step = 0
    _momentum: torch.Tensor | None = None  # u of the paper
    _unsent: torch.Tensor | None = None  # v of the paper

    @classmethod
    def accepts_optimizer(cls, options: ComponentConfig) -> str | None:
        """Only one without momentum."""
        if not getattr(options, "momentum", 0.0) and not hasattr(options, "betas"):
            return None
        return (
            "it keeps a momentum of its own for what it has not sent yet, and a second one in the optimizer would "
            "multiply with it; write 'optimizer: {sgd: {momentum: 0}}' and give the momentum to the codec, as in "
            "{dgc: {momentum: 0.9}}"
        )

    def ratio_at(self, step: int) -> float:
        """Share of the entries that exchange number ``step`` sends."""
        options = self.options
        if step >= options.warmup_steps or options.ratio >= WARMUP_RATIO:
            return options.ratio
        return float(WARMUP_RATIO * (options.ratio / WARMUP_RATIO) ** (step / options.warmup_steps))

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The largest of what has not been sent yet, ``x`` included.

        Raises ValueError where ``x`` has another length than the tensor before.
        """
        gradient = as_flat_fp32(x)
        if self._momentum is None or self._unsent is None:
            self._momentum, self._unsent = torch.zeros_like(gradient), torch.zeros_like(gradient)
        momentum, unsent = self._momentum, self._unsent
        if (length := unsent.numel()) != gradient.numel():
            raise ValueError(f"{length} accumulated elements do not fit {gradient.numel()}: one codec a tensor")
        scale = 1.0
        if self.options.clip_norm is not None and (norm := float(gradient.norm())) > self.options.clip_norm:
            scale = self.options.clip_norm / norm
        momentum.mul_(self.options.momentum).add_(gradient, alpha=scale)
        unsent.add_(momentum)
        payload = self._packed(unsent, self._selected(array_of(unsent)))
        self._step += 1
        indices, sent = self._unpacked(payload)
        if indices is None:
            unsent -= sent
            momentum.zero_()
        else:
            places = tensor_of(indices)
            unsent.index_add_(0, places, sent, alpha=-1)
            momentum.index_fill_(0, places, 0.0)
        return payload

    def answering(self) -> AbstractCodec:
        """The same without momentum and clipping, which the mean has in it: top-k with what it left out."""
        other = type(self)(self.options.model_copy(update={"momentum": 0.0, "clip_norm": None}))
        other.inner = None if self.inner is None else self.inner.answering()
        return other

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Momentum, what has not been sent, and the number of exchanges; nothing before the first one."""
        state = super().state_dict()
        if self._momentum is None or self._unsent is None:
            return state
        own = {"momentum": self._momentum.clone(), "unsent": self._unsent.clone(), "step": torch.tensor(self._step)}
        return {**state, **own}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; an empty dict forgets everything."""
        own = {"momentum", "unsent", "step"}
        super().load_state_dict({key: value for key, value in state.items() if key not in own})
        self._momentum = state["momentum"].clone() if "momentum" in state else None
        self._unsent = state["unsent"].clone() if "unsent" in state else None
        self._step = int(state["step"]) if "step" in state else 0

    def _expected_entries(self, num_elements: int) -> int:
        return entries_at(self.options.ratio, num_elements)

    def _selected(self, x: np.ndarray) -> np.ndarray:
        return top_k(x, entries_at(self.ratio_at(self._step), len(x)), exact=False)
