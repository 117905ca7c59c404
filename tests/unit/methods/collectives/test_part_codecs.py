from __future__ import annotations

import torch

from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.collectives.scatter_gather import ScatterGather
from bwbench.methods.compression.codec import NoCompression
from bwbench.methods.compression.error_feedback import ErrorFeedback

X = torch.randn(1000, generator=torch.Generator().manual_seed(0))


def made(name):
    codec = COMPRESSIONS.load(name)()
    codec.prepare([(2000,)], rank=0, bucket=0)
    return codec


def test_codecs_whose_payloads_stand_alone_serve_all_parts():
    codec, parts = NoCompression(), ScatterGather()
    assert parts.part(codec, 0, 0, 10, 0) is parts.part(codec, 0, 1, 20, 0) is codec
    assert parts.state_dict() == {}


def test_a_part_keeps_its_codec_and_leaves_the_buckets_alone():
    codec, parts = ErrorFeedback(made("threshold")), ScatterGather()
    first, second = (parts.part(codec, 4, number, 1000, 0) for number in (0, 1))
    first.encode(X)
    assert parts.part(codec, 4, 0, 1000, 0) is first
    assert first.residual is not None and second.residual is None and codec.residual is None
    assert list(parts.state_dict()) == ["4.0.residual"]


def test_state_waits_for_the_part_that_it_belongs_to():
    codec, parts = ErrorFeedback(made("threshold")), ScatterGather()
    for number in (0, 1):
        parts.part(codec, 0, number, 1000, 0).encode(X + number)
    parts.answer(codec, 0).encode(X)
    state = parts.state_dict()
    again = ScatterGather()
    again.load_state_dict(state)
    again.part(codec, 0, 1, 1000, 0)  # the others have not been asked for
    assert state.keys() == again.state_dict().keys()
    assert all(torch.equal(state[key], value) for key, value in again.state_dict().items())
    again.load_state_dict({})
    assert again.state_dict() == {} and again.answer(codec, 0).residual is None


def test_parts_round_by_random_numbers_of_their_own():
    codec, parts = made("qsgd"), ScatterGather()
    if codec.sums_on_ring:
        return
    payloads = [parts.part(codec, tag, number, 1000, 0).encode(X) for tag in (0, 1) for number in (0, 1)]
    assert not any(torch.equal(a, b) for i, a in enumerate(payloads) for b in payloads[:i])
