"""Error feedback: what a codec left out is added to what it gets next, so that nothing is lost for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from bwbench.base.component import ComponentConfig
from bwbench.base.explain import nearest, refused, show, yaml_names
from bwbench.methods.compression.codec import AbstractCodec, AbstractLinearCodec, AverageMessage, Shape, as_flat_fp32
from bwbench.methods.deferred import torch

Unit: TypeAlias = Literal["gradient", "update"]
LINEAR_OPTIMIZERS = ("sgd",)  # whose update is the learning rate times something linear in the gradients


class ResidualConfig(ComponentConfig):
    """How a residual is kept: what ``error_feedback`` of a codec may be in place of true.

    Attributes:
        unit: ``gradient`` keeps what is left out as it is, so that it is stepped with at the rate of the day on which
            it leaves; ``update`` keeps it times the learning rate of the day on which it arose.
        decay: what is left of the residual when it is added to the next input; 1 is all of it.
    """

    unit: Unit = Field("gradient", alias="in")
    decay: float = Field(1.0, ge=0.0, le=1.0)


PLAIN = ResidualConfig()
_IN_UPDATES = ResidualConfig(unit="update")


def _checked(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    """The shortest spelling of what was asked for, so that one method has one id."""
    if isinstance(value, bool) or value == "update":
        return value
    if isinstance(value, Mapping):
        known = yaml_names(ResidualConfig)
        if strangers := [key for key in value if key not in known]:
            raise refused(
                f"{show(strangers[0])} is no key of it.{nearest(strangers[0], known)} Known: {', '.join(known)}."
            )
        value = ResidualConfig.model_validate(dict(value), strict=True, by_alias=True, by_name=False)
    if not isinstance(value, ResidualConfig):
        raise refused(f"{show(value)} is not allowed here; write true, false, update, or {{in: update, decay: 0.95}}")
    return True if value == PLAIN else "update" if value == _IN_UPDATES else value


Feedback: TypeAlias = Annotated[bool | Literal["update"] | ResidualConfig, WrapValidator(_checked)]


def residual_of(feedback: Feedback) -> ResidualConfig | None:
    """How the residual is kept that an ``error_feedback`` asks for; None where it asks for none."""
    if isinstance(feedback, ResidualConfig):
        return feedback
    return _IN_UPDATES if feedback == "update" else PLAIN if feedback else None


class ErrorFeedback(AbstractCodec):
    """Wraps any codec with a residual: decoded + residual = input + decay * residual of the call before.

    After Seide et al. 2014 (1-bit SGD) and Karimireddy et al. 2019. One instance serves one tensor (one bucket), always
    of the same length, and is called once a step. The identity above is exact in fp32 where the codec sends a value
    unchanged or not at all, and holds to rounding otherwise. Non-finite input leaves a non-finite residual: that
    training has diverged.

    Karimireddy et al. keep e of p = lr * g + e, in units of the update. For a codec that scales with its input that is
    a residual e / lr in units of the gradient, which is multiplied by the old rate over the new one whenever ``rate``
    has changed: what ``unit: update`` does. At a rate of 0 nothing is stepped with, and the residual stays as it is.
    """

    # A residual belongs to a whole tensor and to one encoding of it; a sum that is encoded anew at every hop has none.
    sums_on_ring = False

    def __init__(self, codec: AbstractCodec, how: ResidualConfig = PLAIN) -> None:
        super().__init__(codec.options)
        self.codec, self.how = codec, how
        self.follows_rate = how.unit == "update"
        self.linear = codec.linear
        self.kept_copies = 1.0 + codec.kept_copies
        self.inner = codec.inner
        # The residual with the other sign: what was decoded less what went in, so that decode_add alone leads from one
        # to the other. Decoding first and subtracting then would take room for a second tensor and two more passes.
        self._excess: torch.Tensor | None = None
        self._unit: torch.Tensor | None = None  # the learning rate that it is in units of, where it follows that
        self._idle: tuple[torch.Tensor, torch.Tensor] | None = None  # where the rate is 0, and what is kept there

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
        x = as_flat_fp32(x)
        excess = self._excess_for(x)
        at_once = self.codec.encode_keeping_excess(x, excess) if self.how.decay == 1.0 else None
        if at_once is not None:
            self._keep_idle()
            return at_once
        total = self._less_excess(x, excess)
        payload = self.codec.encode(total)
        if payload.untyped_storage().data_ptr() == total.untyped_storage().data_ptr():
            payload = payload.clone()  # of its own memory: the total changes now
        self.codec.decode_add(payload, total.neg_())
        self._keep_idle()
        return payload

    def average(self, x: torch.Tensor, average_message: AverageMessage) -> torch.Tensor:
        """The mean of ``x`` plus the residual, by a linear codec; what this rank could not send is the new residual."""
        assert isinstance(self.codec, AbstractLinearCodec)
        x = as_flat_fp32(x)
        total = self._less_excess(x, self._excess_for(x))
        mean, sent = self.codec.average(total, average_message)
        torch.sub(sent, total, out=total)
        self._keep_idle()
        return mean

    def _excess_for(self, x: torch.Tensor) -> torch.Tensor:
        """What was sent too much so far, in units of this ``x``."""
        if self._excess is None:
            self._excess = torch.zeros_like(x)
        if self._excess.numel() != x.numel():
            raise ValueError(f"a residual of {self._excess.numel()} elements does not fit {x.numel()}: one a tensor")
        if self.follows_rate:
            self._follow(self._excess)
        return self._excess

    def _less_excess(self, x: torch.Tensor, excess: torch.Tensor) -> torch.Tensor:
        """``x`` plus the residual, in the memory of the latter."""
        return torch.sub(x, excess, alpha=self.how.decay, out=excess)

    def _follow(self, excess: torch.Tensor) -> None:
        """Bring the residual into units of a gradient that is stepped with at ``rate``."""
        rate = torch.as_tensor(self.rate, dtype=torch.float64 if isinstance(self.rate, float) else None)
        if self._unit is None:
            self._unit = rate
        if self._unit.shape != rate.shape or not torch.equal(self._unit, rate):
            moves = rate != 0.0
            excess.mul_(torch.where(moves, self._unit / rate, 1.0))
            self._unit = torch.where(moves, rate, self._unit)
        idle = rate == 0.0
        if bool(idle.any()):
            self._idle = (idle, excess.clone())
            excess.masked_fill_(idle, 0.0)

    def _keep_idle(self) -> None:
        """What does not move has sent nothing that counts, and its gradient counts for nothing."""
        if self._idle is not None and self._excess is not None:
            self._excess = torch.where(*self._idle, self._excess)
            self._idle = None

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """That of the codec inside: receivers know nothing of the residual."""
        return self.codec.decode(payload, num_elements)

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """That of the codec inside."""
        self.codec.decode_add(payload, total)

    def fresh(self) -> ErrorFeedback:
        """The same codec with an empty residual."""
        return ErrorFeedback(self.codec.fresh(), self.how)

    def answering(self) -> ErrorFeedback:
        """A codec for means on their way back, with an empty residual of its own."""
        return ErrorFeedback(self.codec.answering(), self.how)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """A copy of the residual, where there is one yet, its unit, and what the codec inside remembers."""
        state = {f"codec.{key}": value for key, value in self.codec.state_dict().items()}
        if (residual := self.residual) is not None:
            state["residual"] = residual
        return state if self._unit is None else {**state, "rate": self._unit.clone()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; an empty dict empties the residual."""
        residual = state.get("residual")
        self._excess = None if residual is None else -residual
        self._unit = state["rate"].clone() if "rate" in state else None
        inside = {key.removeprefix("codec."): value for key, value in state.items() if key.startswith("codec.")}
        self.codec.load_state_dict(inside)
