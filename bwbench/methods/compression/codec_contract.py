"""What every codec has to keep, as a check of one codec: for the tests here and for codecs of other people."""

from __future__ import annotations

import math
import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from bwbench.methods.buffers import bytes_of
from bwbench.methods.compression.chain import with_feedback
from bwbench.methods.compression.codec import AbstractCodec, AbstractLinearCodec, AverageMessage, Shape
from bwbench.methods.compression.error_feedback import PLAIN, ErrorFeedback, ResidualConfig
from bwbench.methods.deferred import np, torch

MakeBareCodec = Callable[[], AbstractCodec]

NUM_ELEMENTS = 20_000  # of the gradient that the estimate is checked on
ESTIMATE_TOLERANCE = 0.15  # of payload_bytes where it is not exact
REPEATS = 16  # of encoding the same tensor: whether rounding at random is right on average, whether a residual grows
RATES = (1.0, 0.5, 2.0)  # learning rates of the steps in which a residual is looked at
BIAS_TOLERANCE = 0.02  # of the length of the tensor; ternary rounding comes to 0.3 % (one standard deviation)
LEAST_COSINE = 0.02  # between what was sent and what arrived; vectors that know nothing of one another have some 0.007
_RANK, _OTHER_RANK, _BUCKET = 0, 1, 3  # of the codecs that are tried
_ROUNDS = 3  # of averaging
_NAMED = 3  # tensors that a sentence names; of more it says how many
_TIMEOUT_S = 60.0


def violations(make_codec: MakeBareCodec) -> list[str]:
    """Everything that a codec does wrong, one sentence each; empty where it keeps the contract.

    Args:
        make_codec: gives a new codec each time, without error feedback.
    """
    found: list[tuple[str, str]] = []
    for name, x in gradients().items():
        try:
            found += [(name, text) for text in _of_one_tensor(make_codec, x)]
        except Exception as error:
            found.append((name, f"{type(error).__name__}: {error}"))
    if found:
        return _said_once(found)
    try:
        # Of one that draws without a seed no two payloads can be compared: nothing more is said of its memory.
        of_state = list(_of_chance(make_codec)) or list(_of_memory(make_codec))
        of_sum = list(_of_many_steps(make_codec)) or list(_of_mean(make_codec))
        return [*of_state, *of_sum, *_of_feedback(make_codec), *_of_averaging(make_codec)]
    except Exception as error:
        return [f"normal: {type(error).__name__}: {error}"]


def gradients() -> dict[str, torch.Tensor]:
    """Tensors that a codec must take, by what is special about them."""
    normal = _normal()
    with_nan, with_infinity = normal.clone(), normal.clone()
    with_nan[7], with_infinity[7] = float("nan"), float("inf")
    return {
        "normal": normal,
        "empty": torch.empty(0),
        "one element": torch.tensor([0.5]),
        "seven elements": normal[:7].clone(),
        "zeros": torch.zeros(1000),
        "constant": torch.full((1000,), -0.25),
        "tiny": normal * 1e-20,
        "huge": normal * 1e20,
        "NaN": with_nan,
        "infinity": with_infinity,
        "not contiguous": normal.view(2, -1).t(),
        "fp16": normal.to(torch.float16),
        "a matrix": normal.view(100, -1),
    }


def _normal(seed: int = 0, num_elements: int = NUM_ELEMENTS) -> torch.Tensor:
    return torch.randn(num_elements, generator=torch.Generator().manual_seed(seed))


def _prepared(make_codec: MakeBareCodec, num_elements: int, rank: int = _RANK) -> AbstractCodec:
    """A new codec of a rank, for a bucket that holds a matrix and a vector."""
    codec, side = make_codec(), math.isqrt(num_elements)
    shapes: list[Shape] = [(side, side), (num_elements - side * side,)]
    codec.prepare(shapes, rank, _BUCKET)
    return codec


def _said_once(found: Sequence[tuple[str, str]]) -> list[str]:
    """One sentence for what is wrong with several tensors alike, numbers aside: of the first one, naming the others."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for name, text in found:
        alike.setdefault(re.sub(r"\d+", "#", text), []).append((name, text))
    said = []
    for (first, text), *others in alike.values():
        named = ", ".join(f"'{name}'" for name, _ in others[:_NAMED])
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        said.append(f"{first}: {text}{f' (likewise {named}{more})' if others else ''}")
    return said


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True)


def _cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """Of the angle between two vectors; 0 where one of them is zero."""
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0))


def _of_one_tensor(make_codec: MakeBareCodec, x: torch.Tensor) -> Iterator[str]:
    before, n = x.clone(), x.numel()
    codec = _prepared(make_codec, n)
    payload = codec.encode(x)
    if payload.dtype != torch.uint8 or payload.dim() != 1 or not payload.is_contiguous():
        yield f"encode gave {payload.dtype} of shape {tuple(payload.shape)}, not a contiguous uint8 vector"
        return
    payload = payload.clone()
    if not torch.equal(x.nan_to_num(), before.nan_to_num()):
        yield "encode changed its input"
    yield from _of_its_size(codec, payload.numel(), n)
    decoded = codec.decode(payload, n).clone()
    if decoded.dtype != torch.float32 or tuple(decoded.shape) != (n,):
        yield f"decode gave {decoded.dtype} of shape {tuple(decoded.shape)}, not fp32 of shape ({n},)"
        return
    if not _same(decoded, codec.decode(payload.clone(), n)):
        yield "decoding twice gave different values: decode must not draw random numbers, nor count"
        return
    yield from _as_others_decode(make_codec, payload, decoded)
    total = torch.ones(n)
    codec.decode_add(payload, total)
    if not torch.allclose(total, decoded + 1.0, rtol=1e-5, equal_nan=True):
        yield "decode_add differs from adding what decode gives"
    if bool(x.isnan().any()) and bool(decoded.isfinite().all()):
        yield "a NaN of the input is not seen in the output, so that a diverged training goes unnoticed"
    if bool(x.isfinite().all()) and not bool(decoded.isfinite().all()):
        yield (
            "finite values come out infinite or NaN: something overflows on the way. Compute that in fp64, divide by "
            "the largest magnitude before you square or add, or let values saturate"
        )
    if not bool(x.any()) and bool(decoded.any()):
        yield "zeros do not stay zeros"


def _of_its_size(codec: AbstractCodec, size: int, num_elements: int) -> Iterator[str]:
    says, most = codec.payload_bytes(num_elements), codec.max_payload_bytes(num_elements)
    if codec.sums_on_ring and size != says:
        yield (
            f"payload_bytes says {says}, encode gave {size}: change payload_bytes, or declare sums_on_ring = False "
            "where the size depends on the values"
        )
    elif codec.payload_bytes(NUM_ELEMENTS) == codec.max_payload_bytes(NUM_ELEMENTS) and size != says:
        yield (
            f"payload_bytes says {says}, encode gave {size}: change payload_bytes, or override max_payload_bytes where "
            "the size depends on the values"
        )
    elif size > most:
        yield f"max_payload_bytes says {most}, encode gave {size}: a receiver makes no more room than it says"


def _as_others_decode(make_codec: MakeBareCodec, payload: torch.Tensor, decoded: torch.Tensor) -> Iterator[str]:
    """Who decodes is another rank's codec: one that has encoded nothing yet, or a gradient of its own."""
    n, why = decoded.numel(), ""
    try:
        other = _prepared(make_codec, n, _OTHER_RANK)
        same = _same(decoded, other.decode(payload.clone(), n))
        other.encode(_normal(1, n))
        same = same and _same(decoded, other.decode(payload.clone(), n))
    except Exception as error:
        same, why = False, f" ({type(error).__name__}: {error})"
    if not same:
        yield (
            f"another node decodes the payload to other values{why}: decode may use the payload, the options, and the "
            "shapes and bucket of prepare, and nothing that encode has left in self or that rank decides"
        )


def _of_chance(make_codec: MakeBareCodec) -> Iterator[str]:
    """Random numbers come from a seed, and from a generator of the codec's own."""
    x = _normal()
    one, alike = (_prepared(make_codec, x.numel()) for _ in range(2))
    with _global_generators_kept():
        before = _global_states()
        first = one.encode(x).clone()
        touched = [name for name, state in _global_states().items() if state != before[name]]
        differs = not torch.equal(first, alike.encode(x))
    whose = f"{' and '.join(touched)}'s global generator" if touched else ""
    remedy = (
        "seed a generator of its own with rank and bucket, which prepare is told, and with the number of the call, "
        "which state_dict keeps (AbstractStochasticCodec does)"
    )
    if differs:
        drawn = f" from {whose}" if whose else ""
        yield (
            f"two new codecs, prepared alike, encode the same gradient differently: encode draws random numbers{drawn} "
            f"without a seed (or counts outside of itself), and no training can be repeated; {remedy}"
        )
    elif whose:
        yield f"encode draws from {whose}, or seeds it, and so changes what a training draws from there; {remedy}"


@contextmanager
def _global_generators_kept() -> Iterator[None]:
    """The generators that everybody shares stand elsewhere than a codec may just have put them; later as before."""
    kept = torch.get_rng_state(), np.random.get_state(), random.getstate()
    for draw in (lambda: torch.rand(()), np.random.random, random.random):
        draw()
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        np.random.set_state(kept[1])
        random.setstate(kept[2])


def _global_states() -> dict[str, bytes]:
    """What the generators that everybody shares would draw next."""
    return {
        "torch": bytes_of(torch.get_rng_state()),
        "numpy": repr(np.random.get_state(legacy=False)).encode(),  # 624 words: numpy shortens none below 1000
        "Python": repr(random.getstate()).encode(),
    }


def _of_memory(make_codec: MakeBareCodec) -> Iterator[str]:
    """A training that is resumed goes on bit by bit, and one that starts again does so from nothing."""
    x = _normal()
    codec, resumed = (_prepared(make_codec, x.numel()) for _ in range(2))
    first = codec.encode(x).clone()
    state = {key: value.clone() for key, value in codec.state_dict().items()}
    second = codec.encode(x).clone()
    if not state and not torch.equal(first, second):
        yield (
            "encode remembers something, for it encodes the same gradient differently the next time, and state_dict "
            "gives nothing: state_dict has to give what it remembers (a count, a residual, a basis), and "
            "load_state_dict to take that back, and to forget it where it is given an empty dict"
        )
        return
    codec.load_state_dict(state)
    resumed.load_state_dict(state)
    if not torch.equal(codec.encode(x), second) or not torch.equal(resumed.encode(x), second):
        yield "load_state_dict does not bring back what state_dict gave: the same gradient is encoded otherwise"
    codec.load_state_dict({})
    if not torch.equal(codec.encode(x), first):
        yield "load_state_dict of an empty dict did not forget everything"
    if not torch.equal(codec.fresh().encode(x), first):
        yield "fresh() did not forget everything"


def _of_many_steps(make_codec: MakeBareCodec) -> Iterator[str]:
    """What arrives of a gradient that comes again and again points where it does, and no more is ever kept back.

    A codec that leaves no more out than it was given, which error feedback needs, keeps back less than all that came.
    """
    x = _normal()
    codec = with_feedback(_prepared(make_codec, x.numel()))
    arrived = [codec.decode(codec.encode(x), x.numel()).clone() for _ in range(REPEATS)]
    kept = 0.0
    if isinstance(codec, ErrorFeedback) and codec.residual is not None:
        kept = float(codec.residual.norm() / x.norm())
    if (cosine := _cosine(arrived[0], x)) < -LEAST_COSINE:
        yield f"what arrives points away from the gradient (cosine {cosine:.2f}): a sign is turned round"
    elif not kept <= REPEATS:
        yield (
            f"after {REPEATS} steps error feedback keeps back {kept:.3g} times a gradient, more than ever came: decode "
            "gives something else than was sent, or more of it. Right that, or declare the codec unbiased if it is"
        )
    elif (cosine := _cosine(torch.stack(arrived).sum(0), x)) < LEAST_COSINE:
        yield f"what arrives has nothing to do with the gradient (cosine {cosine:.2f} over {REPEATS} steps)"


def _of_feedback(make_codec: MakeBareCodec) -> Iterator[str]:
    """The identity decoded + residual = input + residual before, over three steps; and the size of a gradient."""
    x = _normal()
    bare = _prepared(make_codec, x.numel())
    estimate, size = bare.payload_bytes(x.numel()), bare.encode(x).numel()
    if abs(estimate - size) > ESTIMATE_TOLERANCE * size:
        yield f"normal: payload_bytes says {estimate}, encode gave {size}: more than 15 % off"
    for how in (PLAIN, ResidualConfig(decay=0.5), ResidualConfig(unit="update")):
        codec = ErrorFeedback(_prepared(make_codec, x.numel()), how)
        for step in range(3):
            codec.rate = RATES[step]
            before = torch.zeros_like(x) if codec.residual is None else how.decay * codec.residual
            if how.unit == "update" and step:
                before *= RATES[step - 1] / RATES[step]
            decoded = codec.decode(codec.encode(x), x.numel())
            assert codec.residual is not None
            rounding = 1e-6 * max(1.0, float(decoded.abs().max()))  # a value may be far smaller than what is sent
            if not torch.allclose(decoded + codec.residual, x + before, rtol=1e-5, atol=rounding):
                yield f"error feedback, step {step + 1}: decoded + residual is not input + residual before ({how})"
        if codec.fresh().residual is not None:
            yield "fresh() did not forget the residual"


def _of_mean(make_codec: MakeBareCodec) -> Iterator[str]:
    """What an unbiased codec loses is zero on average, and another rank's is another."""
    x = _normal()
    codec, other = (_prepared(make_codec, x.numel(), rank) for rank in (_RANK, _OTHER_RANK))
    if codec.biased or codec.linear or codec.inner is not None:
        return
    payloads = [codec.encode(x).clone() for _ in range(REPEATS)]
    total = sum(codec.decode(payload, x.numel()) for payload in payloads)
    share = float((total / REPEATS * x).sum() / (x * x).sum())
    if abs(share - 1.0) > BIAS_TOLERANCE:
        yield f"a mean of {REPEATS} payloads comes to {share:.3f} of the tensor; declare the codec biased"
    if not bool((payloads[0] == payloads[1]).all()) and bool((other.encode(x) == payloads[0]).all()):
        yield "rounds at random, but alike on all ranks: the errors will not average out"


def _of_averaging(make_codec: MakeBareCodec) -> Iterator[str]:
    """What a codec whose messages are averaged makes of them, on two ranks at the same time, over three steps."""
    alone = _prepared(make_codec, NUM_ELEMENTS)
    if not isinstance(alone, AbstractLinearCodec):
        return
    given = [_normal(seed) for seed in (1, 2)]
    ranks = _TwoRanks()
    with ThreadPoolExecutor(len(given)) as pool:
        jobs = [pool.submit(ranks.average, make_codec, rank, x) for rank, x in enumerate(given)]
        one, other = (job.result() for job in jobs)
    if ranks.lengths[0] != _ROUNDS * alone.message_elements(NUM_ELEMENTS):
        yield "average_message is given vectors of other lengths than message_elements says"
    if any(not _same(*pair) for pair in zip(one, other, strict=True)):
        yield (
            "average gives each rank another mean: it may depend on averaged messages and on what all ranks share, and "
            "not on its own gradient or rank"
        )
    elif _cosine(torch.stack(one).sum(0), torch.stack(given).sum(0)) < LEAST_COSINE:
        yield "the mean that average gives has nothing to do with that of what was given"


class _TwoRanks:
    """Two ranks in threads, each with a codec, that average what these tell one another."""

    def __init__(self) -> None:
        self.lengths: list[list[int]] = [[], []]
        self._told: list[torch.Tensor] = [torch.empty(0), torch.empty(0)]
        self._both = threading.Barrier(2, timeout=_TIMEOUT_S)

    def average(self, make_codec: MakeBareCodec, rank: int, x: torch.Tensor) -> list[torch.Tensor]:
        """The means of three steps, on one rank."""
        try:
            codec = _prepared(make_codec, x.numel(), rank)
            assert isinstance(codec, AbstractLinearCodec)
            return [codec.average(x, self._between(rank))[0].clone() for _ in range(_ROUNDS)]
        except BaseException:
            self._both.abort()  # the other one waits for nobody
            raise

    def _between(self, rank: int) -> AverageMessage:
        def average_message(message: torch.Tensor) -> None:
            self.lengths[rank].append(message.numel())
            self._told[rank] = message.clone()
            self._both.wait()
            message.copy_((self._told[0] + self._told[1]) / 2)
            self._both.wait()

        return average_message
