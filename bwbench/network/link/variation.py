"""What about a link varies over time: outages of some nodes, and the traces that its rates follow.

These are declarations; ``trace_file.py`` reads a trace, ``rate_trace.py`` is what it becomes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from bwbench.base.explain import refused, unknown_key
from bwbench.base.units import DURATION, Bandwidth, Duration, PositiveDuration

# Numbers of nodes as they stand in YAML and JSON, where keys are text and tuples are lists.


def as_tuple(value: Any) -> Any:
    """A list as a tuple; anything else as it is, for the type to refuse."""
    return tuple(value) if isinstance(value, list) else value


def as_list(value: Any) -> Any:
    """One of something as a list of it."""
    return (value,) if isinstance(value, (str, Mapping)) else as_tuple(value)


NodeNumber = Annotated[
    int,
    Field(ge=0),
    BeforeValidator(lambda value: int(value) if isinstance(value, str) and value.isdecimal() else value),
]
NodeNumbers = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(as_tuple)]


class Outage(BaseModel):
    """From ``at`` on, for ``duration``, every frame from and to the nodes is lost, counted from the start of training.

    Attributes:
        at_s: when it begins.
        duration_s: how long it lasts.
        every_s: from one beginning to the next; None happens once.
        nodes: whose link is dead; None is everyone's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    at_s: Duration = Field(alias="at")
    duration_s: PositiveDuration = Field(alias="duration")
    every_s: PositiveDuration | None = Field(None, alias="every")
    nodes: NodeNumbers | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Outage:
        if self.every_s is not None and self.every_s <= self.duration_s:
            raise refused(
                f"an outage of {DURATION.format(self.duration_s)} every {DURATION.format(self.every_s)} never ends; "
                "'every' must be longer than 'duration'"
            )
        return self

    def is_dead(self, time_s: float) -> bool:
        """Whether the link is dead ``time_s`` after the start."""
        since_s = time_s - self.at_s
        if since_s < 0:
            return False
        into_s: float = since_s if self.every_s is None else since_s % self.every_s
        return bool(into_s < self.duration_s)


RateUnit = Literal["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "B/s", "kB/s", "MB/s"]
Measures = Literal["link", "tcp-goodput"]


class Trace(BaseModel):
    """A file with a rate that changes over time; it begins with the training and repeats when it ends.

    Attributes:
        file: path; relative to the file that names it, absolute once that is read.
        format: ``wifi`` (seconds, tab, Mbit/s), ``mahimahi`` (a line for each packet: the millisecond at which it may
            leave), ``csv`` (a header that names columns), or ``auto``, which looks at the file.
        measures: ``link`` is the rate of whole frames; ``tcp-goodput`` what TCP made of it, from which the frames are
            reckoned (1514 / 1448). None takes what the format usually holds: goodput for ``wifi``, the link's rate for
            ``mahimahi``; a CSV file has to say.
        column: of a CSV file that has more than one column of rates.
        unit: of a CSV file whose header does not name it.
        columns: names of a CSV file's columns, such as ``time_s,bytes_per_s``, in place of its header.
        start_s: where in the trace to begin.
        sha256: of the file as it was when the experiment was planned; filled in.
        mean_bps: mean rate of frames over the trace; filled in, for prediction and for the probe.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, json_schema_extra={"short_form": [{"type": "string"}]}
    )

    file: str = Field(min_length=1)
    format: Literal["auto", "wifi", "mahimahi", "csv"] = "auto"
    measures: Measures | None = None
    column: str | None = None
    unit: RateUnit | None = None
    columns: str | None = None
    start_s: Duration = Field(0.0, alias="start")
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    mean_bps: Bandwidth | None = Field(None, alias="mean")
    _dilation: float = PrivateAttr(1.0)

    @property
    def dilation(self) -> float:
        """So many times slower than in its file the trace is played."""
        return self._dilation

    def dilated(self, factor: float) -> Trace:
        """The same file where time runs ``factor`` times slower; ``start`` and mean rate with it."""
        update = {"start_s": self.start_s * factor, "mean_bps": self.mean_bps and self.mean_bps / factor}
        made = self.model_copy(update=update)
        made._dilation = self._dilation * factor
        return made

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"file": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _consistent(self) -> Trace:
        if self.format == "csv" and self.measures is None:
            allowed = "'measures: link' (whole frames) or 'measures: tcp-goodput'"
            raise refused(f"a CSV trace has to say what it measures: {allowed}")
        if self.format in ("wifi", "mahimahi"):
            for key in ("unit", "column", "columns"):
                if getattr(self, key) is not None:
                    raise refused(f"'{key}' belongs to 'format: csv'; {self.format} traces have none, leave it out")
        return self


class Traces(BaseModel):
    """The traces of both directions of a node; ``{file: …}`` or a mere path means both. None keeps the bandwidth."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra=lambda schema: schema.update(short_form=schema["properties"]["up"]["anyOf"][:1]),
    )

    up: Trace | None = None
    down: Trace | None = None

    @model_validator(mode="before")
    @classmethod
    def _both(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value and not {"up", "down"} & set(value):
            try:
                value = Trace.model_validate(value)  # once: a mistake in it is one message, at the key where it stands
            except ValidationError as error:
                known = [*(field.alias or name for name, field in Trace.model_fields.items()), "up", "down"]
                lines = [_detail(line, known) for line in error.errors()]
                raise ValidationError.from_exception_data("trace", lines) from None
        return {"up": value, "down": value} if isinstance(value, (str, Trace)) else value

    @model_validator(mode="after")
    def _any(self) -> Traces:
        if self.up is None and self.down is None:
            raise refused("a trace needs a file: 'trace: {file: PATH}', or one for 'up' and one for 'down'")
        return self


def _detail(line: ErrorDetails, known: list[str]) -> InitErrorDetails:
    """The same problem; an unknown key with the keys that are known here, which the place alone does not tell."""
    kind: str | PydanticCustomError = line["type"]
    if kind == "extra_forbidden":
        kind = refused(unknown_key(str(line["loc"][-1]), known))
    elif "message" in line.get("ctx", {}):  # one of our own
        kind = refused(line["msg"])
    return InitErrorDetails(type=kind, loc=line["loc"], input=line["input"], ctx=line.get("ctx", {}))
