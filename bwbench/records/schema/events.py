"""What a rank records while it trains: the events of ``rank<r>.jsonl``, and the heads of its checkpoints."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from bwbench.base.errors import RecordError
from bwbench.records.schema.record import Flag, Number, Record, Text, Versioned, Whole, refusal

Ending = Literal["done", "failed", "timeout", "diverged", "invalid", "interrupted"]
Split = Literal["validation", "test"]


class _Event(Record):
    """An event says what it is in its first field."""

    def model_post_init(self, _: object) -> None:
        """Its kind is always written, and the version where it has one."""
        self.__pydantic_fields_set__.update({"event", "schema_"} & type(self).model_fields.keys())


class Start(_Event):
    """Once, at clock zero.

    Attributes:
        pid: of the worker.
        time_unix_s, mono_s: wall clock and monotonic clock of the machine at clock zero.
        num_parameters, gradient_bytes: of the model; its gradient in fp32.
        global_batch: samples of one optimizer step over all nodes.
        num_train, num_validation, num_test: samples of the splits.
        bucket_bytes: the gradient's buckets, in the order in which they are sent.
        dilation: seconds of the machine to one of the training, mono_s included; None where they are the same.
        shrink: parameters, and the rates of the link, were divided by it; None where they were not. What is said in
            bytes is of the shrunk model, num_parameters too.
        waits: false where no step waits for anybody, whatever is under way; None of all other methods.
        threads: of the worker; tcp: TCP's settings in its namespace.
        overlap_estimated: computing and waiting are told apart by an estimate (torch's own DDP).
        plain_backward_s: backward pass without communication, which that estimate rests on.
        device: name of the GPU that this rank computes on; None for the processor.
        backend: there, of torch's own exchange: ``gloo`` or ``nccl``; ``nccl`` too where ranks of a host average by it
            first; None for all others of our collectives, which use gloo.
    """

    event: Literal["start"] = "start"
    schema_: Whole = Field(1, alias="schema")
    pid: Whole | None = None
    time_unix_s: Number | None = None
    mono_s: Number | None = None
    rank: Whole | None = None
    world_size: Whole | None = None
    num_parameters: Whole | None = None
    gradient_bytes: Whole | None = None
    global_batch: Whole | None = None
    num_train: Whole | None = None
    num_validation: Whole | None = None
    num_test: Whole | None = None
    bucket_bytes: tuple[Whole, ...] = ()
    threads: Whole | None = None
    torch_version: Text | None = None
    overlap_estimated: Flag = False
    plain_backward_s: Number | None = None
    dilation: Number | None = None
    device: Text | None = None
    backend: Text | None = None
    shrink: Number | None = None
    waits: Flag | None = None
    tcp: dict[Text, Text] = {}


class Resume(_Event):
    """Training goes on from a checkpoint; events before this one are of earlier attempts.

    Attributes:
        pid: of the worker.
        time_unix_s, mono_s: as in ``Start``, at the moment at which the training clock goes on.
        attempt: number of the attempt that took the checkpoint.
        step, samples, clock_s: where training goes on.
        plain_backward_s, tcp: as in ``Start``.
    """

    event: Literal["resume"] = "resume"
    pid: Whole | None = None
    time_unix_s: Number | None = None
    mono_s: Number | None = None
    attempt: Whole | None = None
    step: Whole
    samples: Whole | None = None
    clock_s: Number | None = None
    plain_backward_s: Number | None = None
    tcp: dict[Text, Text] = {}


class LedgerParts(Record):
    """Where the time of one step of one rank went, in training seconds; the parts add up to the step within 2 %.

    Attributes:
        compute_s: forward and backward.
        codec_s: encoding and decoding.
        exposed_s: waiting for communication, be it for peers or for the link.
        optimizer_s: the update.
        pad_s: padding to the declared ``step_time``.
        other_s: all else.
    """

    compute_s: Number = 0.0
    codec_s: Number = 0.0
    exposed_s: Number = 0.0
    optimizer_s: Number = 0.0
    pad_s: Number = 0.0
    other_s: Number = 0.0


class Chosen(Record):
    """What a method that adapts to its link has chosen in a step, the same on all ranks, and why.

    Attributes:
        ratio: share of the entries that are sent; staleness: steps from computing a gradient to stepping with it.
        rate_bps, latency_s, compute_s: measured in the window before, of the slowest rank: how fast exchanges went in
            payload that a rank sends, what one of next to nothing takes, and computing of a step.
        step_s: what a step is predicted to take.
        why: the same in words.
    """

    ratio: Number
    staleness: Whole
    rate_bps: Number
    latency_s: Number
    compute_s: Number
    step_s: Number
    why: Text


class Step(_Event):
    """One optimizer step.

    Attributes:
        step: 1-based; samples: cumulative, over all nodes.
        clock_s: training clock at its end.
        mono_s, ready_mono_s: monotonic clock at its begin, and when the rank's own gradients were all ready.
        loss: training loss of the rank's batch; lr: learning rate.
        payload_bytes: sent by this rank in this step.
        duration_s: of the step.
        chosen: in steps in which something was; absent in all others.
    """

    event: Literal["step"] = "step"
    step: Whole
    samples: Whole
    clock_s: Number
    mono_s: Number | None = None
    ready_mono_s: Number | None = None
    loss: Number | None = None
    lr: Number | None = None
    payload_bytes: Whole | None = None
    duration_s: Number
    ledger: LedgerParts | None = None
    chosen: Chosen | None = None


class Evaluation(_Event):
    """One evaluation; the first one is at step 0.

    Attributes:
        samples: trained on by then, over all nodes; clock_s: training clock, which stands meanwhile.
        local: metrics of this rank's replica on its share of the split.
        mean: metrics over all samples: what counts. A metric that is not finite is None.
        weights: whose they are where weights are averaged, ``averaged`` or ``trained``; absent elsewhere.
        beside: metrics over all samples of the others of the two.
        target_met: whether they meet the cell's target; of several all of them.
        duration_s: what it took, off the clock.
        waited_s: on the clock, from the end of the last step until all ranks were there; absent in the first one.
    """

    event: Literal["eval"] = "eval"
    split: Split
    step: Whole
    samples: Whole
    clock_s: Number
    local: dict[Text, Number | None] = {}
    mean: dict[Text, Number | None]
    weights: Text | None = None
    beside: dict[Text, Number | None] = {}
    target_met: Flag | None = None
    duration_s: Number | None = None
    waited_s: Number | None = None


class RankError(_Event):
    """Why a rank gives up.

    Attributes:
        type: class of the exception.
    """

    event: Literal["error"] = "error"
    type: Text = ""
    message: Text = ""


class End(_Event):
    """The last event: without it the rank has failed.

    Attributes:
        status: ``done`` or ``diverged``.
        reason: ``target``, ``samples`` or ``time``; of a diverged training what was seen.
        step, samples, clock_s: how far training went; payload_bytes: all that this rank sent.
        control_bytes: frames that left its node by the control path while the clock ran; None where that has no
            interface of its own, absent in older records.
        replica_sha256: of the parameters.
        evaluation_s: spent evaluating.
        ledger_error: how far the parts of the steps are from adding up, as a share of all steps;
            ledger_error_worst_step: of the worst step.
    """

    event: Literal["end"] = "end"
    status: Literal["done", "diverged"]
    reason: Text = ""
    step: Whole = 0
    samples: Whole | None = None
    clock_s: Number | None = None
    payload_bytes: Whole | None = None
    control_bytes: Whole | None = None
    replica_sha256: Text | None = None
    evaluation_s: Number | None = None
    ledger_error: Number | None = None
    ledger_error_worst_step: Number | None = None


Event: TypeAlias = Start | Resume | Step | Evaluation | RankError | End
KINDS = frozenset({"start", "resume", "step", "eval", "error", "end"})
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def parse_event(line: bytes | str, where: object, remedy: str) -> Event:
    """One line of ``rank<r>.jsonl``; raises RecordError as ``parse_content`` does."""
    try:
        return _EVENT.validate_json(line)
    except ValidationError as error:
        raise _refused(error, where, remedy) from None


def event_of(message: object) -> Event | None:
    """The event that a worker told, None where its message is about something else.

    Raises RecordError where it is none of ours.
    """
    if not isinstance(message, dict) or message.get("event") not in KINDS:
        return None
    try:
        return _EVENT.validate_python(message)
    except ValidationError as error:
        raise _refused(error, "a worker's message", "is it of another version of bwbench?") from None


def _refused(error: ValidationError, where: object, remedy: str) -> RecordError:
    detail = error.errors(include_url=False, include_input=False)[0]
    if detail["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return RecordError(f"{where}: event: no kind of event that is known ({', '.join(sorted(KINDS))}); {remedy}")
    return refusal(error, Step, where, remedy)


class WireTraffic(Record):
    """What crossed the data network between the starting barrier and the drain after the last step.

    Where training has gone on from a checkpoint: what had crossed it up to there, and what crossed it from there on.

    Attributes:
        bytes, frames: all, with every header.
        ack_bytes, ack_frames: those without payload; None where they were not told apart.
        drops: frames that the link lost.
    """

    bytes: Whole
    ack_bytes: Whole | None = None
    frames: Whole
    ack_frames: Whole | None = None
    drops: Whole

    def plus(self, other: WireTraffic) -> WireTraffic:
        """The sum of both."""
        both = {name: (one, getattr(other, name)) for name, one in self}
        return WireTraffic.model_validate({name: None if None in pair else sum(pair) for name, pair in both.items()})


class Extent(Record):
    """The first bytes of a file, and what they are known by."""

    bytes: Whole = Field(ge=0)
    sha256: Text


class Carried(Record):
    """What the launcher has kept in a checkpoint of the attempts up to there.

    Attributes:
        wire: traffic so far; None where it was not counted.
        played_s: how far traces and outages had got.
        wall_s: what the attempts took.
    """

    wire: WireTraffic | None = None
    played_s: Number = 0.0
    wall_s: Number = 0.0


class CheckpointPlace(Record):
    """Where training was when a checkpoint was taken; the same on all ranks, but for some of the clock."""

    step: Whole
    samples: Whole
    clock_s: Number
    world_size: Whole
    carried: Carried


class _OfRank(Versioned):
    """The rank that a record is of."""

    rank: Whole


class CheckpointHead(CheckpointPlace, _OfRank):
    """``rank<r>.json`` of a checkpoint: where training was, and what belongs to it.

    Attributes:
        state: of ``rank<r>.pt``; events: of the records up to there.
    """

    state: Extent
    events: Extent
