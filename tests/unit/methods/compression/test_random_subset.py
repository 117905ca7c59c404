"""``random-subset``, and CocktailSGD's chain of three codecs, beside plain loops."""

from __future__ import annotations

import pytest
import torch

from bwbench.base.component import Component
from bwbench.base.registry import COLLECTIVES
from bwbench.experiment.config.resolve import resolve_method
from bwbench.methods.collectives.rank_threads import round_of, run_ranks
from bwbench.methods.compression import ErrorFeedback, build_codec
from bwbench.methods.compression.chain import chain_refusal
from bwbench.methods.compression.codec_contract import violations
from bwbench.methods.compression.int8 import Int4
from bwbench.methods.compression.random_k import places
from bwbench.methods.compression.random_subset import RandomSubset, RandomSubsetConfig
from bwbench.methods.compression.sparse import TopK, TopKConfig, entries_at

N, SEEN, RATIO = 5_000, 0.2, 0.1


def normal(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def cocktail():
    subset = RandomSubset(RandomSubsetConfig(ratio=SEEN))
    subset.inner = TopK(TopKConfig(ratio=RATIO, exact=True))
    subset.inner.inner = Int4()
    return subset


def test_the_chain_keeps_the_contract_of_codecs():
    assert violations(cocktail) == []


def test_what_is_sent_is_the_largest_of_the_random_ones_in_four_bits():
    codec, error, quantiser = ErrorFeedback(cocktail()), torch.zeros(N), Int4()
    codec.prepare([(N,)], rank=1, bucket=3)
    for step in range(5):
        wanted = normal(N, step) + error
        seen = torch.from_numpy(places(3, step, N, entries_at(SEEN, N))).sort().values
        chosen = seen[wanted[seen].abs().topk(entries_at(RATIO, len(seen))).indices.sort().values]
        sent = torch.zeros(N)
        sent[chosen] = quantiser.decode(quantiser.encode(wanted[chosen]), len(chosen))
        error = wanted - sent
        assert torch.equal(codec.decode(codec.encode(normal(N, step)), N), sent)
        torch.testing.assert_close(codec.residual, error)


@pytest.mark.parametrize("collective", ["all-gather", "scatter-gather", "parameter-server"])
def test_replicas_are_equal_whoever_decodes(collective):
    """Codecs of parts, and of ways back, have numbers of their own: the payload says whose places it has."""

    def work(group, rank):
        ours = COLLECTIVES.load(collective)()
        ours.connect(group)
        codec = build_codec([Component("random-subset", RandomSubsetConfig(ratio=0.5))])
        codec.prepare([(N,)], rank, bucket=2)
        total = torch.zeros(N)
        for _ in range(30):
            bucket = normal(N, rank)
            ours.average(bucket, codec, round_of(group, 2))
            total += bucket
        return total / 30

    found = run_ranks(3, work)
    mean = torch.stack([normal(N, rank) for rank in range(3)]).mean(0)
    assert all(torch.equal(one, found[0]) for one in found)
    assert (found[0] - mean).norm() / mean.norm() < 0.2  # but for what the residuals still hold


def test_an_index_among_few_takes_fewer_bits():
    alone, behind = TopK(TopKConfig(ratio=SEEN * RATIO)), cocktail()
    alone.inner = Int4()
    x = normal(200_000)
    sizes = [codec.encode(x).numel() for codec in (alone, behind)]
    assert sizes[1] < 0.8 * sizes[0]
    assert sizes == pytest.approx([codec.payload_bytes(200_000) for codec in (alone, behind)], rel=0.05)


def test_what_is_not_finite_anywhere_is_seen():
    x = normal(N)
    x[7] = float("nan")
    codec, total = cocktail(), torch.zeros(N)
    payload = codec.encode(x)
    codec.decode_add(payload, total)
    assert bool(codec.decode(payload, N).isnan().all()) and bool(total.isnan().all())


def test_the_preset_is_the_chain_and_what_sums_up_may_not_stand_first():
    chain = resolve_method({"algorithm": "cocktail-sgd"}, 4).config.compression
    assert [component.name for component in chain] == ["random-subset", "top-k", "int4"]
    assert isinstance(build_codec(chain), ErrorFeedback)
    assert "no residual" in chain_refusal([Component("random-k"), *chain[1:]])
