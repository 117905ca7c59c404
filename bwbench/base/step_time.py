"""How long a step of computing is declared to take: always the same, drawn anew for each step, or by a trace.

What is drawn depends on the seed of the training, the rank and the number of the step, and on nothing else. So all arms
of a comparison meet the same times at the same steps, a training that goes on from a checkpoint meets those that it
would have met, and anybody can compute them again from a record.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from statistics import NormalDist
from typing import Annotated, Any, TypeAlias

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import InitErrorDetails

from bwbench.base.explain import nearest, problem, show
from bwbench.base.plain_data import Json, JsonObject
from bwbench.base.units import DURATION, PositiveDuration, percentage

MOST_SPREAD = 3.0
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FORMS = "'60 ms', {mean: 60 ms, spread: 20 %} or {trace: FILE}"
_NORMAL = NormalDist()


@dataclass(frozen=True)
class SteadyStepTime:
    """A time that is the same in each step, or drawn anew for each from a log-normal distribution.

    Attributes:
        mean_s: of the distribution, in seconds.
        spread: standard deviation as a share of the mean; 0 is always the same.
    """

    mean_s: float
    spread: float = 0.0

    def __str__(self) -> str:
        """In words for tables: ``60 ms``, ``60 ms ± 20 %``."""
        mean = DURATION.format(self.mean_s)
        return f"{mean} ± {100 * self.spread:.4g} %" if self.spread else mean

    @property
    def is_drawn(self) -> bool:
        """Whether it differs from step to step."""
        return self.spread > 0

    @property
    def log_deviation(self) -> float:
        """Standard deviation of its logarithm."""
        return math.sqrt(math.log1p(self.spread**2))

    def drawn_s(self, seed: int, rank: int, step: int) -> float:
        """What step number ``step`` of a rank is asked to take, in seconds."""
        if not self.is_drawn:
            return self.mean_s
        return self._at_deviation(_standard_normal(seed, rank, step))

    def quantile_s(self, share: float) -> float:
        """So many seconds, or less, are drawn for this share of the steps; ``share`` lies between 0 and 1."""
        return self._at_deviation(_NORMAL.inv_cdf(share)) if self.is_drawn else self.mean_s

    def share_within(self, seconds: float) -> float:
        """The share of the steps that take so many seconds or less."""
        if not self.is_drawn:
            return float(seconds >= self.mean_s)
        if seconds <= 0:
            return 0.0
        deviation = self.log_deviation
        return _NORMAL.cdf(math.log(seconds / self.mean_s) / deviation + deviation / 2)

    def mean_of(self, steps: float) -> SteadyStepTime:
        """Of the mean over so many steps: a log-normal distribution with its mean and deviation (Fenton 1960)."""
        return SteadyStepTime(self.mean_s, self.spread / math.sqrt(steps))

    def to_json(self) -> Json:
        """As it is written in YAML and in cell.json."""
        mean = DURATION.format(self.mean_s)
        if not self.is_drawn:
            return mean
        return {"mean": mean, "spread": self.spread if self.spread <= 1 else f"{100 * self.spread:.12g} %"}

    def _at_deviation(self, deviations: float) -> float:
        scale = self.log_deviation
        return self.mean_s * math.exp(scale * deviations - scale * scale / 2)


@dataclass(frozen=True)
class StepTimeTrace:
    """Times that a file gives over the seconds of training.

    Attributes:
        file: path; relative to the file that names it, absolute once that is read.
        sha256: of the file as it was when the experiment was planned; filled in.
    """

    file: str
    sha256: str | None = None

    def __str__(self) -> str:
        """In words for tables: ``trace laptop.csv``."""
        return f"trace {PurePath(self.file).name}"

    def to_json(self) -> Json:
        """As it is written in YAML and in cell.json."""
        return {"trace": self.file, **({} if self.sha256 is None else {"sha256": self.sha256})}


AnyStepTime: TypeAlias = SteadyStepTime | StepTimeTrace


def _standard_normal(seed: int, rank: int, step: int) -> float:
    """A number from the standard normal distribution, by its quantile at a number from 0 to 1 that a hash gives."""
    digest = hashlib.sha256(f"step time: seed {seed}, rank {rank}, step {step}".encode()).digest()
    return _NORMAL.inv_cdf(((int.from_bytes(digest[:8], "big") >> 12) + 0.5) / 2**52)


def parse_step_time(value: object) -> AnyStepTime:
    """A step time as it is written in YAML or in cell.json.

    Raises ValidationError whose locations are those of the input.
    """
    if isinstance(value, (SteadyStepTime, StepTimeTrace)):
        return value
    if not isinstance(value, Mapping):
        if isinstance(value, list):
            raise _refusal([problem(f"{show(value)} is not a step time; write it like {_FORMS}")])
        return SteadyStepTime(_DURATION.validate_python(value))
    known = ("trace", "sha256") if "trace" in value else ("mean", "spread")
    errors = [problem(_unknown(str(key), known), (str(key),)) for key in value if key not in known]
    read = _read_trace if "trace" in value else _read_drawn
    found = read(value, errors)
    if errors or found is None:
        raise _refusal(errors)
    return found


def _read_drawn(value: Mapping[Any, Any], errors: list[InitErrorDetails]) -> SteadyStepTime | None:
    if not errors:
        missing = {"mean": "'mean' is missing: the mean step time", "spread": "'spread' is missing: the deviation"}
        errors += [problem(f"{text}; write it like {_FORMS}") for key, text in missing.items() if key not in value]
    mean_s, spread = math.nan, math.nan
    if "mean" in value:
        try:
            mean_s = _DURATION.validate_python(value["mean"])
        except ValidationError as error:
            errors += [problem(line["msg"], ("mean",)) for line in error.errors(include_url=False)]
    if "spread" in value:
        try:
            spread = _spread(value["spread"])
        except ValueError as error:
            errors.append(problem(str(error), ("spread",)))
    return None if errors else SteadyStepTime(mean_s, spread)


def _read_trace(value: Mapping[Any, Any], errors: list[InitErrorDetails]) -> StepTimeTrace | None:
    file, sha256 = value["trace"], value.get("sha256")
    if not isinstance(file, str) or not file:
        errors.append(problem(f"{show(file)} is not the name of a file with step times", ("trace",)))
    if sha256 is not None and not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        errors.append(problem(f"{show(sha256)} is not a SHA-256; leave it out", ("sha256",)))
    return None if errors else StepTimeTrace(str(file), sha256)


def _unknown(key: str, known: tuple[str, ...]) -> str:
    return f"unknown key {key!r}.{nearest(key, known)} A step time is {_FORMS}"


def _spread(value: object) -> float:
    """A standard deviation over its mean; raises ValueError with what is allowed."""
    most = f"0 or more, at most {100 * MOST_SPREAD:g} %"
    in_percent = isinstance(value, str)
    share = percentage(value) if isinstance(value, str) else value
    if isinstance(share, bool) or not isinstance(share, (int, float)) or math.isnan(share):
        raise ValueError(f"{show(value)} is not a spread; write the deviation as a share of the mean: '20 %' or 0.2")
    if not in_percent and share > 1:  # 5 for 5 % would be a slip that nothing else tells
        raise ValueError(f"{show(value)} is out of range: {most}; for {share:g} percent write '{share:g} %'")
    if not 0 <= share <= MOST_SPREAD:
        raise ValueError(f"{show(value)} is out of range: {most}")
    return float(share)


def _refusal(errors: list[InitErrorDetails]) -> ValidationError:
    return ValidationError.from_exception_data("step time", errors)


_DURATION: TypeAdapter[float] = TypeAdapter(PositiveDuration)
_TEXT = {"type": "string", "examples": [DURATION.example], "title": DURATION.name}
_PERCENT = {"type": "string", "pattern": r"^\s*[0-9.eE+-]+\s*%\s*$"}
_SCHEMA: dict[str, Any] = {
    "anyOf": [
        _TEXT,
        {
            "type": "object",
            "properties": {
                "mean": {"description": "Mean of a log-normal distribution, drawn from for each step.", **_TEXT},
                "spread": {
                    "description": "Standard deviation as a share of the mean.",
                    "anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, _PERCENT],
                },
            },
            "required": ["mean", "spread"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "trace": {
                    "description": "CSV file: seconds of training, step time from then on.",
                    "type": "string",
                    "minLength": 1,
                },
                "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            },
            "required": ["trace"],
            "additionalProperties": False,
        },
    ]
}

# For pydantic models: one of the three inside, text or a mapping in YAML and JSON.
DeclaredStepTime = Annotated[
    AnyStepTime,
    PlainValidator(parse_step_time),
    PlainSerializer(lambda declared: declared.to_json(), return_type=str | dict[str, object]),
    WithJsonSchema(_SCHEMA),
]


@dataclass(frozen=True)
class RecordedStepTimes:
    """What a record says of step times.

    Attributes:
        everyones: of a node that is not among ``own``; None where none was declared.
        own: of nodes that differ, by their number.
    """

    everyones: AnyStepTime | None
    own: tuple[tuple[int, AnyStepTime], ...] = ()

    def __str__(self) -> str:
        """In words for tables: ``60 ms ± 20 %, node 2: 120 ms``; empty where none was declared."""
        nodes = [f"node {node}: {declared}" for node, declared in self.own]
        return ", ".join([*([] if self.everyones is None else [str(self.everyones)]), *nodes])

    def of_nodes(self, num_nodes: int) -> tuple[AnyStepTime, ...]:
        """Those of all nodes, in order; empty where none was declared."""
        own = dict(self.own)
        found = [own.get(node, self.everyones) for node in range(num_nodes)]
        return tuple(one for one in found if one is not None)

    def drawn(self, num_nodes: int) -> tuple[SteadyStepTime, ...] | None:
        """Likewise; None where none was declared, or where a node follows a trace, which no record holds."""
        found = self.of_nodes(num_nodes)
        known = tuple(one for one in found if isinstance(one, SteadyStepTime))
        return known if known and len(known) == len(found) else None


def recorded_step_times(compute: JsonObject) -> RecordedStepTimes:
    """The step times in ``compute`` of a recorded configuration. Raises ValueError where it has something else."""
    return _recorded(json.dumps([compute.get("step_time"), compute.get("overrides")], sort_keys=True))


@lru_cache(maxsize=1024)  # thousands of cells have the same few
def _recorded(text: str) -> RecordedStepTimes:
    declared, overrides = json.loads(text)

    def read(value: Json, key: str) -> AnyStepTime:
        try:
            return parse_step_time(value)
        except ValidationError:
            shown = repr(value) if isinstance(value, str) else show(value)
            raise ValueError(f"compute.{key} is {shown}, which is no duration") from None

    if overrides is not None and not isinstance(overrides, dict):
        raise ValueError("compute.overrides is no mapping")
    own = []
    for node, differs in (overrides or {}).items():
        if not node.isdecimal() or not isinstance(differs, dict):
            raise ValueError("compute.overrides has something else than nodes")
        own.append((int(node), read(differs.get("step_time"), f"overrides.{node}.step_time")))
    return RecordedStepTimes(
        None if declared is None else read(declared, "step_time"), tuple(sorted(own, key=lambda one: one[0]))
    )
