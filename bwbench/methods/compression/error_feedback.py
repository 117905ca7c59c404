"""Error feedback: what a codec left out is added to what it gets next, so that nothing is lost for good."""

from __future__ import annotations

from collections.abc import Sequence

from bwbench.methods.compression.codec import AbstractCodec, AbstractLinearCodec, AverageMessage, Shape, as_flat_fp32
from bwbench.methods.deferred import torch


class ErrorFeedback(AbstractCodec):
    """Wraps any codec with a residual: decoded + residual = input + residual of the call before.

    After Seide et al. 2014 (1-bit SGD) and Karimireddy et al. 2019. One instance serves one tensor (one bucket), always
    of the same length, and is called once a step. The identity above is exact in fp32 where the codec sends a value
    unchanged or not at all, and holds to rounding otherwise. Non-finite input leaves a non-finite residual: that
    training has diverged.
    """

    # A residual belongs to a whole tensor and to one encoding of it; a sum that is encoded anew at every hop has none.
    sums_on_ring = False

    def __init__(self, codec: AbstractCodec) -> None:
        super().__init__(codec.options)
        self.codec = codec
        self.linear = codec.linear
        self.inner = codec.inner
        # The residual with the other sign: what was decoded less what went in, so that decode_add alone leads from one
        # to the other. Decoding first and subtracting then would take room for a second tensor and two more passes.
        self._excess: torch.Tensor | None = None

    @property
    def residual(self) -> torch.Tensor | None:
        """A copy of what has not been sent yet, fp32; None before the first call."""
        return None if self._excess is None else -self._excess

    def prepare(self, shapes: Sequence[Shape], rank: int = 0, bucket: int = 0) -> None:
        """Hand on to the codec inside."""
        self.codec.prepare(shapes, rank, bucket)

    def payload_bytes(self, num_elements: int) -> int:
        """That of the codec inside."""
        return self.codec.payload_bytes(num_elements)

    def payloads(self, num_elements: int) -> list[int]:
        """Those of the codec inside."""
        return self.codec.payloads(num_elements)

    def max_payload_bytes(self, num_elements: int) -> int:
        """That of the codec inside."""
        return self.codec.max_payload_bytes(num_elements)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The payload of ``x`` plus the residual; what it leaves out becomes the new residual.

        Raises ValueError where ``x`` has another length than the tensor before.
        """
        total = self._with(x)
        payload = self.codec.encode(total)
        if payload.untyped_storage().data_ptr() == total.untyped_storage().data_ptr():
            payload = payload.clone()  # of its own memory: the total changes now
        self.codec.decode_add(payload, total.neg_())
        return payload

    def average(self, x: torch.Tensor, average_message: AverageMessage) -> torch.Tensor:
        """The mean of ``x`` plus the residual, by a linear codec; what this rank could not send is the new residual."""
        assert isinstance(self.codec, AbstractLinearCodec)
        total = self._with(x)
        mean, sent = self.codec.average(total, average_message)
        torch.sub(sent, total, out=total)
        return mean

    def _with(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` plus the residual, in the memory of the latter."""
        x = as_flat_fp32(x)
        if self._excess is None:
            self._excess = torch.zeros_like(x)
        if self._excess.numel() != x.numel():
            raise ValueError(f"a residual of {self._excess.numel()} elements does not fit {x.numel()}: one a tensor")
        return torch.sub(x, self._excess, out=self._excess)

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """That of the codec inside: receivers know nothing of the residual."""
        return self.codec.decode(payload, num_elements)

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """That of the codec inside."""
        self.codec.decode_add(payload, total)

    def fresh(self) -> ErrorFeedback:
        """The same codec with an empty residual."""
        return ErrorFeedback(self.codec.fresh())

    def answering(self) -> ErrorFeedback:
        """A codec for means on their way back, with an empty residual of its own."""
        return ErrorFeedback(self.codec.answering())

    def state_dict(self) -> dict[str, torch.Tensor]:
        """A copy of the residual, where there is one yet, and what the codec inside remembers."""
        state = {f"codec.{key}": value for key, value in self.codec.state_dict().items()}
        residual = self.residual
        return state if residual is None else {**state, "residual": residual}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; an empty dict empties the residual."""
        residual = state.get("residual")
        self._excess = None if residual is None else -residual
        inside = {key.removeprefix("codec."): value for key, value in state.items() if key.startswith("codec.")}
        self.codec.load_state_dict(inside)
