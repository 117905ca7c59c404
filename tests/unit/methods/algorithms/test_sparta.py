"""SPARTA and LOSCAR: which parameters are averaged when, and what is sent."""

from __future__ import annotations

import pytest
import torch

from bwbench.base.registry import COMPRESSIONS
from bwbench.experiment.config.method_names import PRESETS
from bwbench.methods.algorithms.small_replica import SHAPES, attached
from bwbench.methods.algorithms.sparta import Sparta, SpartaConfig
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.collectives.ring import Ring
from bwbench.methods.compression.codec import NoCompression
from bwbench.methods.compression.random_k import places
from tests.references.case import ELEMENTS
from tests.references.side_by_side import ADAMW, Method, train

STEPS, RANKS = 20, 4


def mask(number, ratio):
    """Where the parameters of a round are."""
    return torch.from_numpy(places(0, number, ELEMENTS, round(ratio * ELEMENTS)))


def test_what_was_averaged_has_the_same_bits_everywhere():
    trained = train(Method({"sparta": {"ratio": 0.1}}, "ring", "none", ADAMW), RANKS, STEPS)
    order = trained.setting.order
    for step in range(STEPS):
        flat = [torch.cat([tensors[index].reshape(-1) for index in order]) for tensors in trained.parameters[step]]
        where = mask(step, 0.1)
        assert all(torch.equal(values[where], flat[0][where]) for values in flat)
        equal = torch.stack([values == flat[0] for values in flat]).all(0)
        assert equal.sum() < 0.5 * ELEMENTS  # the others go on by themselves


def test_every_parameter_has_its_turn():
    seen = torch.zeros(ELEMENTS)
    for number in range(5000):
        seen[mask(number, 0.005)] += 1
    assert seen.min() > 0 and seen.max() < 60  # 21 on average


def test_nothing_but_the_chosen_values_is_sent():
    elements = sum(torch.Size(shape).numel() for shape in SHAPES)
    for ratio in (0.001, 0.1, 1.0):
        ours = Sparta(SpartaConfig(ratio=ratio))
        count = max(1, round(ratio * elements))
        sent = Ring().traffic(4, [4 * count]).payload_bytes_per_rank
        assert ours.traffic(SHAPES, 4, Ring(), NoCompression).payload_bytes_per_rank == sent


def test_memory_beside_the_parameters_is_that_of_the_chosen_values():
    def work(group, rank):
        node = attached(group, rank, Sparta(SpartaConfig(ratio=0.1)), "ring")
        node.train(3)
        node.running.close()
        return node.running.bucket_bytes, {key: value.numel() for key, value in node.running.state_dict().items()}

    for sizes, state in run_ranks(2, work):
        elements = sum(torch.Size(shape).numel() for shape in SHAPES)
        assert sizes == [4 * round(0.1 * elements)]
        assert state == {"step": 1, "bucket.0.round": 1}


def test_loscar_is_the_same_with_rounds_that_come_late():
    preset = PRESETS["loscar"]
    options = SpartaConfig(**preset.options)
    (phase,) = Sparta(options).phases(SHAPES)
    assert preset.algorithm == "sparta" and (phase.period, phase.overlap) == (16, 8)
    assert Sparta(options).traffic(SHAPES, 4, Ring(), NoCompression).in_background
    assert not Sparta().traffic(SHAPES, 4, Ring(), NoCompression).in_background
    assert "link" in Sparta(SpartaConfig(overlap="auto")).depends_on_link()


@pytest.mark.parametrize("codec", ["int8", "top-k", "random-k", "powersgd"])
def test_codecs_that_spoil_weights_are_refused(codec):
    assert Sparta.accepts_codec(COMPRESSIONS.load(codec)) is not None
    assert Sparta.accepts_codec(COMPRESSIONS.load("fp16")) is None
