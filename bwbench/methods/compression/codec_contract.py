"""What every codec has to keep, as a check of one codec: for the tests here and for codecs of other people."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bwbench.methods.compression.codec import AbstractCodec
from bwbench.methods.compression.error_feedback import PLAIN, ErrorFeedback, ResidualConfig
from bwbench.methods.deferred import torch

NUM_ELEMENTS = 20_000  # of the gradient that the estimate is checked on
ESTIMATE_TOLERANCE = 0.15  # of payload_bytes where it is not exact
REPEATS = 16  # of encoding the same tensor, to see whether a codec that rounds at random is right on average
RATES = (1.0, 0.5, 2.0)  # learning rates of the steps in which a residual is looked at
BIAS_TOLERANCE = 0.02  # of the length of the tensor; ternary rounding comes to 0.3 % (one standard deviation)


def violations(make_codec: Callable[[], AbstractCodec]) -> list[str]:
    """Everything that a codec does wrong, one sentence each; empty where it keeps the contract.

    Args:
        make_codec: gives a new codec each time.
    """
    found = []
    for name, x in gradients().items():
        try:
            found += [f"{name}: {text}" for text in _of_one_tensor(make_codec(), x)]
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
    return found or [*_of_feedback(make_codec), *_of_memory(make_codec), *_of_mean(make_codec)]


def gradients() -> dict[str, torch.Tensor]:
    """Tensors that a codec must take, by what is special about them."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(NUM_ELEMENTS, generator=generator)
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


def _of_one_tensor(codec: AbstractCodec, x: torch.Tensor) -> Iterator[str]:
    before, n = x.clone(), x.numel()
    payload = codec.encode(x)
    if payload.dtype != torch.uint8 or payload.dim() != 1 or not payload.is_contiguous():
        yield f"encode gave {payload.dtype} of shape {tuple(payload.shape)}, not a contiguous uint8 vector"
        return
    payload = payload.clone()
    if not torch.equal(x.nan_to_num(), before.nan_to_num()):
        yield "encode changed its input"
    size, estimate = payload.numel(), codec.payload_bytes(n)
    if codec.sums_on_ring and size != estimate:
        yield f"payload_bytes says {estimate}, encode gave {size}: sums_on_ring promises that they are equal"
    elif codec.payload_bytes(NUM_ELEMENTS) == codec.max_payload_bytes(NUM_ELEMENTS) and size != estimate:
        yield f"payload_bytes says {estimate}, encode gave {size}: a payload as large as the largest has a fixed size"
    if size > codec.max_payload_bytes(n):
        yield f"max_payload_bytes says {codec.max_payload_bytes(n)}, encode gave {size}"
    decoded = codec.decode(payload, n).clone()
    if decoded.dtype != torch.float32 or tuple(decoded.shape) != (n,):
        yield f"decode gave {decoded.dtype} of shape {tuple(decoded.shape)}, not fp32 of shape ({n},)"
        return
    if not torch.equal(decoded.nan_to_num(), codec.decode(payload.clone(), n).nan_to_num()):
        yield "decoding twice gave different values"
    total = torch.ones(n)
    codec.decode_add(payload, total)
    if not torch.allclose(total, decoded + 1.0, rtol=1e-5, equal_nan=True):
        yield "decode_add differs from adding what decode gives"
    if bool(x.isnan().any()) and bool(decoded.isfinite().all()):
        yield "a NaN of the input is not seen in the output, so that a diverged training goes unnoticed"
    if not bool(x.any()) and bool(decoded.any()):
        yield "zeros do not stay zeros"


def _of_feedback(make_codec: Callable[[], AbstractCodec]) -> Iterator[str]:
    """The identity decoded + residual = input + residual before, over three steps; then what state is worth."""
    x, bare = gradients()["normal"], make_codec()
    estimate, size = bare.payload_bytes(x.numel()), bare.encode(x).numel()
    if abs(estimate - size) > ESTIMATE_TOLERANCE * size:
        yield f"normal: payload_bytes says {estimate}, encode gave {size}: more than 15 % off"
    for how in (PLAIN, ResidualConfig(decay=0.5), ResidualConfig(unit="update")):
        codec = ErrorFeedback(make_codec(), how)
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


def _of_memory(make_codec: Callable[[], AbstractCodec]) -> Iterator[str]:
    """A training that is resumed goes on bit by bit, and one that starts again does so from nothing."""
    x, codec = gradients()["normal"], make_codec()
    first = codec.encode(x).clone()
    state = codec.state_dict()
    second = codec.encode(x).clone()
    codec.load_state_dict(state)
    if not torch.equal(codec.encode(x), second):
        yield "load_state_dict does not bring back what state_dict gave: the same gradient is encoded otherwise"
    codec.load_state_dict({})
    if not torch.equal(codec.encode(x), first):
        yield "load_state_dict of an empty dict did not forget everything"
    if not torch.equal(codec.fresh().encode(x), first):
        yield "fresh() did not forget everything"


def _of_mean(make_codec: Callable[[], AbstractCodec]) -> Iterator[str]:
    """What an unbiased codec loses is zero on average, and another rank's is another."""
    codec, other = make_codec(), make_codec()
    if codec.biased or codec.linear or codec.inner is not None:
        return
    x = gradients()["normal"]
    codec.prepare([tuple(x.shape)], rank=0)
    other.prepare([tuple(x.shape)], rank=1)
    payloads = [codec.encode(x).clone() for _ in range(REPEATS)]
    total = sum(codec.decode(payload, x.numel()) for payload in payloads)
    share = float((total / REPEATS * x).sum() / (x * x).sum())
    if abs(share - 1.0) > BIAS_TOLERANCE:
        yield f"a mean of {REPEATS} payloads comes to {share:.3f} of the tensor; declare the codec biased"
    if not bool((payloads[0] == payloads[1]).all()) and bool((other.encode(x) == payloads[0]).all()):
        yield "rounds at random, but alike on all ranks: the errors will not average out"
