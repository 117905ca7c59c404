"""What manages a queue: the names of its disciplines, and the parameters of each as a link asks for them.

These are declarations; ``relay/disciplines.py`` and its neighbours do what they say. Defaults of CoDel, FQ-CoDel and
PIE are those of the Linux kernel's qdiscs of the same names, which are those of the RFCs (8289, 8290, 8033), with two
exceptions: a queue marks (ECN) only where that is asked for, and a quantum is 1514 B whatever the MTU. No RFC has
parameters of RED. Its thresholds follow the advice of tc-red(8), its weight is nearly the paper's 0.002, and the
probability of 0.1 is our choice: tc-red(8) has 0.02.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bwbench.base.explain import nearest, refused
from bwbench.base.plain_data import JsonObject
from bwbench.base.units import Period, PositiveDuration, PositiveShare, Quantum
from bwbench.network.link.frame_sizes import ETHERNET_FRAME_BYTES

DROP_TAIL = "drop-tail"


class AbstractDiscipline(BaseModel):
    """Parameters of a managed queue. Times are in the emulated time of the link that names them.

    Attributes:
        ecn: whether it marks a packet (RFC 3168), where it would drop it and the packet can be marked. The nodes' TCP
            asks for that then.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    default_size: ClassVar[str]  # of the queue that it manages, as a user would write it

    discipline: str
    ecn: bool = False

    def written(self) -> JsonObject:
        """All its keys as a record has them."""
        found: JsonObject = self.model_dump(mode="json", by_alias=True)
        return found

    def dilated(self, factor: float) -> AbstractDiscipline:
        """The same where time runs ``factor`` times slower."""
        return self


class CoDel(AbstractDiscipline):
    """Controlled delay (RFC 8289): drops at the head where packets have waited too long for too long.

    Attributes:
        target_s: what a packet may wait.
        interval_s: for so long it may be more, before the first one is dropped.
    """

    default_size: ClassVar[str] = "1000 packets"

    discipline: Literal["codel"] = "codel"
    target_s: PositiveDuration = Field(5e-3, alias="target")
    interval_s: PositiveDuration = Field(0.1, alias="interval")

    @model_validator(mode="after")
    def _consistent(self) -> CoDel:
        if self.target_s >= self.interval_s:
            raise refused("'target' must be shorter than 'interval': a twentieth of it is usual (5 ms and 100 ms)")
        return self

    def dilated(self, factor: float) -> CoDel:
        """See the base class."""
        return self.model_copy(update={"target_s": self.target_s * factor, "interval_s": self.interval_s * factor})


class FqCoDel(CoDel):
    """A queue for each flow, served in turns and managed by CoDel each (RFC 8290).

    Attributes:
        flows: queues among which flows are spread by a hash.
        quantum_bytes: what a queue may send in its turn.
    """

    default_size: ClassVar[str] = "10240 packets"

    discipline: Literal["fq_codel"] = "fq_codel"  # type: ignore[assignment]
    flows: int = Field(1024, ge=1, le=65_536)
    quantum_bytes: Quantum = Field(float(ETHERNET_FRAME_BYTES), alias="quantum")


class Pie(AbstractDiscipline):
    """Proportional integral controller enhanced (RFC 8033): drops on arrival by chance, as the delay tells.

    Attributes:
        target_s: the delay that it steers towards.
        update_s: how often it reckons the probability anew.
        burst_s: for so long after a pause it drops nothing.
        long_s: beyond this delay the probability rises by 2 % more each time.
        alpha_per_s, beta_per_s: how strongly that follows the delay's distance from the target, and its change.
    """

    default_size: ClassVar[str] = "1000 packets"

    discipline: Literal["pie"] = "pie"
    target_s: PositiveDuration = Field(15e-3, alias="target")
    update_s: Period = Field(15e-3, alias="update")
    burst_s: PositiveDuration = Field(0.15, alias="burst")
    long_s: PositiveDuration = Field(0.25, alias="long")
    alpha_per_s: Annotated[float, Field(gt=0, le=100)] = Field(0.125, alias="alpha")
    beta_per_s: Annotated[float, Field(gt=0, le=100)] = Field(1.25, alias="beta")

    def dilated(self, factor: float) -> Pie:
        """See the base class."""
        times = {name: getattr(self, name) * factor for name in ("target_s", "update_s", "burst_s", "long_s")}
        return self.model_copy(
            update={**times, "alpha_per_s": self.alpha_per_s / factor, "beta_per_s": self.beta_per_s / factor}
        )


class Red(AbstractDiscipline):
    """Random early detection (Floyd and Jacobson 1993): drops by chance, as the average queue tells.

    Attributes:
        low: share of the queue's size from which on it drops; ``high``: from which on it drops everything. The advice
            of tc-red(8) is a queue of four times the upper, and an upper of three times the lower one.
        probability: of a drop where the average is as much as ``high``.
        weight: of a packet's queue in the average.
    """

    default_size: ClassVar[str] = "200 ms"

    discipline: Literal["red"] = "red"
    low: PositiveShare = 1 / 12
    high: PositiveShare = 1 / 4
    probability: PositiveShare = 0.1
    weight: PositiveShare = 2**-9

    @model_validator(mode="after")
    def _consistent(self) -> Red:
        if self.low >= self.high:
            raise refused("'low' must be less than 'high', both as shares of the queue's size")
        return self


KINDS: Mapping[str, type[AbstractDiscipline]] = {"codel": CoDel, "fq_codel": FqCoDel, "pie": Pie, "red": Red}
NAMES = (DROP_TAIL, *KINDS)


def kind_of(name: Any) -> type[AbstractDiscipline] | None:
    """The discipline of that name; None for ``drop-tail``. Raises PydanticCustomError where there is none."""
    if name == DROP_TAIL:
        return None
    if not isinstance(name, str) or name not in KINDS:
        raise refused(f"{name!r} is no discipline of a queue.{nearest(name, NAMES)} Known: {', '.join(NAMES)}")
    return KINDS[name]
