"""What every collective has to keep, as a check of one collective: for the tests here and for those of other people."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bwbench.base.component import Component
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.rank_threads import round_of, run_ranks
from bwbench.methods.compression import AbstractCodec, build_codec
from bwbench.methods.deferred import dist, torch
from bwbench.network.link import Link

MakeCollective = Callable[[], AbstractCollective]

CODECS = ("none", "fp16", "int8", "threshold", "random-k")  # one of each kind
SIZES = (1, 2, 3, 5)
# Codecs that keep every value but for rounding: how far a mean may be off, for each square root of a rank.
LOSSLESS = {"none": 1e-6, "fp16": 2e-3, "bf16": 2e-2}
NUM_ELEMENTS = 10_007  # of the buckets that are averaged: a prime, which nothing cuts evenly
_TAG = 3
_TIMEOUT_S = 60.0
_APART = ((3_000, 4), (70_000, 5), (11, 6))  # lengths and tags of buckets that are on their way at the same time
_LINK = Link.model_validate({"bandwidth": "10 Mbit/s", "latency": "2 ms"})


def accepts(make: MakeCollective, codec: str, num_ranks: int = 8) -> bool:
    """Whether the collective carries payloads of ``codec`` between so many nodes."""
    codec_class = COMPRESSIONS.load(codec)
    collective = make()
    return collective.accepts(codec_class) is None and collective.check(num_ranks, [codec_class]) is None


def make_codec(name: str, num_elements: int = 0, rank: int = 0, bucket: int = 0) -> AbstractCodec:
    """A codec with its default options, wrapped as cells have it, for a bucket that holds a matrix and a vector."""
    codec = build_codec([Component(name, COMPRESSIONS.load(name).Config())])
    side = int(num_elements**0.5)
    codec.prepare([(side, side), (num_elements - side * side,)], rank, bucket)
    return codec


def inputs(num_ranks: int, num_elements: int, seed: int = 0) -> list[torch.Tensor]:
    """A bucket for each rank, always the same ones."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(num_elements, generator=generator) for _ in range(num_ranks)]


def violations(make: MakeCollective, codec: str = "none", sizes: Sequence[int] = SIZES) -> list[str]:
    """Everything that a collective does wrong, one sentence each; empty where it keeps the contract.

    Ranks are threads that talk through gloo on loopback. Leaves torch with one thread.

    Args:
        make: gives a new collective each time, with the same options.
        codec: whose payloads it carries; one that it ``accepts``.
        sizes: numbers of ranks; those that its options do not go with are left out.
    """
    if not accepts(make, codec):
        return [f"does not go with the codec {codec!r}; ask accepts() first"]
    found = []
    for size in (size for size in sizes if size == 1 or accepts(make, codec, size)):
        try:
            made = run_ranks(size, lambda group, rank: _Averaging(make, codec).on(group, rank), _TIMEOUT_S)
            found += [f"{size} ranks: {text}" for text in _judge(make(), codec, made)]
        except Exception as error:
            found.append(f"{size} ranks: {type(error).__name__}: {error}")
    return found


@dataclass
class _Averaging:
    """What one rank has seen.

    Attributes:
        results: of averaging its ``inputs``: as such, with new objects, and on a link that is asked to be slow.
        after: of a second round: going on, from a state dict, and after a reset.
        few: of buckets of 0, 1, 2 and 7 elements.
        apart: of several buckets one after another, and of the same at the same time.
    """

    make: MakeCollective
    codec: str
    results: list[torch.Tensor] = field(default_factory=list)
    after: list[torch.Tensor] = field(default_factory=list)
    few: list[torch.Tensor] = field(default_factory=list)
    apart: list[list[torch.Tensor]] = field(default_factory=list)
    payload_bytes: int = 0

    def on(self, group: dist.ProcessGroup, rank: int) -> _Averaging:
        """Try everything on a rank of ``group``, in the same order on all."""
        self._group, self._rank = group, rank
        mine = inputs(group.size(), NUM_ELEMENTS)[rank]
        ours, codec = self._connected(), self._codec(NUM_ELEMENTS)
        self.results.append(self._averaged(mine, ours, codec))
        self.payload_bytes = ours.meter.take().payload_bytes
        states = [{key: value.clone() for key, value in one.state_dict().items()} for one in (ours, codec)]
        self.after.append(self._averaged(mine, ours, codec))
        resumed, its_codec = self._connected(), self._codec(NUM_ELEMENTS)
        resumed.load_state_dict(states[0])
        its_codec.load_state_dict(states[1])
        self.after.append(self._averaged(mine, resumed, its_codec))
        ours.reset()
        codec.load_state_dict({})
        self.after.append(self._averaged(mine, ours, codec))
        for link in (None, _LINK):
            self.results.append(self._averaged(mine, self._connected(link), self._codec(NUM_ELEMENTS)))
        for length in (0, 1, 2, 7):
            self.few.append(self._averaged(inputs(group.size(), length)[rank]))
        self.zeros = self._averaged(torch.zeros(1000))
        poisoned = inputs(group.size(), 1000)[rank]
        if rank == group.size() - 1:
            poisoned[500] = float("nan")
        self.poisoned = self._averaged(poisoned)
        one_by_one = self._one_by_one()
        self.apart = [one_by_one, one_by_one if ours.wraps_model else self._at_once()]  # torch's own is called by one
        return self

    def _connected(self, link: Link | None = None) -> AbstractCollective:
        ours = self.make()
        ours.connect(self._group, link)
        return ours

    def _codec(self, num_elements: int, tag: int = _TAG) -> AbstractCodec:
        return make_codec(self.codec, num_elements, self._rank, tag)

    def _averaged(
        self,
        values: torch.Tensor,
        ours: AbstractCollective | None = None,
        codec: AbstractCodec | None = None,
        tag: int = _TAG,
    ) -> torch.Tensor:
        bucket = values.clone()
        codec = codec or self._codec(values.numel(), tag)
        (ours or self._connected()).average(bucket, codec, round_of(self._group, tag))
        return bucket

    def _buckets(self) -> list[tuple[torch.Tensor, int]]:
        return [(inputs(self._group.size(), length, tag)[self._rank], tag) for length, tag in _APART]

    def _one_by_one(self) -> list[torch.Tensor]:
        return [self._averaged(values, tag=tag) for values, tag in self._buckets()]

    def _at_once(self) -> list[torch.Tensor]:
        """All buckets from threads, in another order on every rank."""
        ours = self._connected()
        made: dict[int, torch.Tensor] = {}
        buckets = self._buckets()

        def average(values: torch.Tensor, tag: int) -> None:
            made[tag] = self._averaged(values, ours, tag=tag)

        order = buckets[self._rank % len(buckets) :] + buckets[: self._rank % len(buckets)]
        threads = [threading.Thread(target=average, args=bucket, daemon=True) for bucket in order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_TIMEOUT_S)
        return [made[tag] for _, tag in buckets if tag in made]


def _judge(ours: AbstractCollective, codec: str, made: list[_Averaging]) -> Iterator[str]:
    first, size = made[0], len(made)
    given = inputs(size, NUM_ELEMENTS)
    if size == 1:
        if not torch.equal(first.results[0], given[0]) or first.payload_bytes:
            yield "one node has nobody to average with: its bucket must stay, and nothing be sent"
        return
    for trial in made:
        if not trial.results[0].isfinite().all():
            yield "a mean of finite values is not finite"
        if any(not torch.equal(again, trial.results[0]) for again in trial.results[1:]):
            yield "the same buckets give other bits a second time, or on another link"
        if not torch.equal(trial.after[1], trial.after[0]):
            yield "load_state_dict does not bring back what state_dict gave: the next round comes out otherwise"
        if not torch.equal(trial.after[2], trial.results[0]):
            yield "reset did not forget everything"
        if trial.zeros.any():
            yield "zeros do not stay zeros"
        if len(trial.apart[1]) < len(_APART):
            yield "several buckets at the same time wait for ever"
        elif any(not torch.equal(a, b) for a, b in zip(*trial.apart, strict=True)):
            yield "several buckets at the same time disturb one another"
    if ours.exact:
        yield from _judge_exact(codec, made, given)
    elif codec in LOSSLESS:
        low, high = torch.stack(given).min(0).values, torch.stack(given).max(0).values
        slack = LOSSLESS[codec] * 10
        if any(bool(((trial.results[0] < low - slack) | (trial.results[0] > high + slack)).any()) for trial in made):
            yield "a mean over some of the ranks lies outside of what they have"
    yield from _judge_bytes(ours, codec, made)


def _judge_exact(codec: str, made: list[_Averaging], given: list[torch.Tensor]) -> Iterator[str]:
    """What is promised where every rank gets the mean over all."""
    size = len(made)
    if any(not torch.equal(trial.results[0], made[0].results[0]) for trial in made):
        yield "ranks end with different bits; declare it exact = False, or add up in the same order everywhere"
    for number, length in enumerate((0, 1, 2, 7)):
        if any(not torch.equal(trial.few[number], made[0].few[number]) for trial in made):
            yield f"a bucket of {length} elements ends with different bits"
        elif codec == "none" and not torch.allclose(
            made[0].few[number], torch.stack(inputs(size, length)).mean(0), atol=1e-6
        ):
            yield f"a bucket of {length} elements is not its mean"
    if any(bool(trial.poisoned.isfinite().all()) for trial in made):
        yield "a NaN of one rank does not reach all, so that a diverged training goes unnoticed"
    if codec in LOSSLESS:
        off = float((made[0].results[0] - torch.stack(given).double().mean(0)).abs().max())
        if off > LOSSLESS[codec] * (1 if codec == "none" else size**0.5):
            yield f"is not the mean: off by up to {off:.2g}"


def _judge_bytes(ours: AbstractCollective, codec: str, made: list[_Averaging]) -> Iterator[str]:
    """Whether each rank has sent what ``traffic`` says."""
    its = make_codec(codec, NUM_ELEMENTS)
    payloads = its.payloads(NUM_ELEMENTS)
    claimed = ours.traffic(len(made), payloads).payload_bytes_per_rank
    exact = its.linear or its.sums_on_ring  # else its size may depend on where the entries lie
    # What a codec puts before each message is told for the bucket, not for the parts that some collectives cut; and
    # chunks are of whole elements.
    headers = (8 if exact else 24 * 4) * len(made) * len(payloads)
    for rank, trial in enumerate(made):
        if abs(trial.payload_bytes - claimed[rank]) > (2e-3 if exact else 0.15) * claimed[rank] + headers:
            yield f"rank {rank} sent {trial.payload_bytes} bytes, and traffic claims {claimed[rank]:.0f}"
