"""The contract of codecs finds what can be wrong with one, and says it in a sentence that names it."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor

from bwbench.methods.compression.codec import AbstractCodec, AbstractLinearCodec, as_flat_fp32
from bwbench.methods.compression.codec_contract import violations
from bwbench.methods.compression.random_k import RandomK, RandomKConfig
from bwbench.methods.compression.stochastic import Qsgd


class Byte(AbstractCodec):
    """What the mutants are made of: right, a byte an element and the largest magnitude."""

    biased = True
    sums_on_ring = False

    def payload_bytes(self, num_elements: int) -> int:
        return 4 + num_elements

    def encode(self, x: Tensor) -> Tensor:
        values = as_flat_fp32(x).numpy()
        largest = np.abs(values).max(initial=0.0)
        with np.errstate(invalid="ignore"):
            codes = np.rint(values / (largest / 127) if largest else values).astype(np.int8)
        return torch.from_numpy(np.concatenate([np.array([largest], np.float32).view(np.uint8), codes.view(np.uint8)]))

    def decode(self, payload: Tensor, num_elements: int) -> Tensor:
        content = payload.numpy()
        with np.errstate(invalid="ignore"):
            return torch.from_numpy(content[4:].view(np.int8) * (content[:4].view(np.float32) / np.float32(127)))


class Smuggling(Byte):
    """Sends one byte; what is decoded lies in the codec."""

    _kept = torch.empty(0)

    def payload_bytes(self, num_elements):
        return 1

    def encode(self, x):
        self._kept = as_flat_fp32(x).clone()
        return torch.zeros(1, dtype=torch.uint8)

    def decode(self, payload, num_elements):
        return self._kept.clone()


class SmugglingByClass(Smuggling):
    """The same by the class, which all codecs of a process share."""

    def encode(self, x):
        SmugglingByClass._kept = as_flat_fp32(x).clone()
        return torch.zeros(1, dtype=torch.uint8)


class SmugglingTheScale(Byte):
    """Only the scale stays at home; another rank has none, or its own."""

    def payload_bytes(self, num_elements):
        return num_elements

    def encode(self, x):
        payload = super().encode(x)
        self.scale = payload[:4].clone()
        return payload[4:].clone()

    def decode(self, payload, num_elements):
        return super().decode(torch.cat([self.scale, payload]), num_elements)


class DecodingByRank(Byte):
    """Adds what is another number on each rank."""

    _rank = 0

    def prepare(self, shapes, rank=0, bucket=0):
        self._rank = rank

    def decode(self, payload, num_elements):
        return super().decode(payload, num_elements) * (1 + self._rank)


class Negative(Byte):
    def decode(self, payload, num_elements):
        return -super().decode(payload, num_elements)


class NegativeAndUnbiased(Negative):
    biased = False


class Magnitudes(Byte):
    def decode(self, payload, num_elements):
        return super().decode(payload, num_elements).abs()


class Constant(Byte):
    """Of the right size, and the same whatever the gradient is; without error feedback, which would tell."""

    biased = False

    def decode(self, payload, num_elements):
        return super().decode(payload, num_elements).abs().sort().values


class Thrice(Byte):
    def decode(self, payload, num_elements):
        return 3 * super().decode(payload, num_elements)


class Overflowing(Byte):
    """By way of squares, in fp32."""

    def decode(self, payload, num_elements):
        values = super().decode(payload, num_elements)
        return torch.sign(values) * (values * values).sqrt()


class AsHalves(AbstractCodec):
    """What does not fit into a half becomes infinite."""

    def payload_bytes(self, num_elements):
        return 2 * num_elements

    def encode(self, x):
        return as_flat_fp32(x).to(torch.float16).view(torch.uint8)

    def decode(self, payload, num_elements):
        return payload.view(torch.float16).float()


class _AtRandom(Byte):
    def encode(self, x):
        payload = super().encode(x)
        payload[4:] = (payload[4:].view(torch.int8).float() * (0.5 + self.drawn())).to(torch.int8).view(torch.uint8)
        return payload

    def drawn(self) -> float:
        raise NotImplementedError


class FromTorch(_AtRandom):
    def drawn(self):
        return float(torch.rand(())) / 2


class FromNumpy(_AtRandom):
    def drawn(self):
        return np.random.rand() / 2


class FromPython(_AtRandom):
    def drawn(self):
        return random.random() / 2


class FromNowhere(_AtRandom):
    def drawn(self):
        return np.random.default_rng().random() / 2


class SeedingTorch(_AtRandom):
    def drawn(self):
        torch.manual_seed(0)
        return float(torch.rand(())) / 2


class Counting(_AtRandom):
    """Seeded by a count that is nowhere kept."""

    _calls = 0

    def drawn(self):
        self._calls += 1
        return np.random.default_rng(self._calls).random() / 2


class HalfKept(Counting):
    """The same, and what it gives is not what it takes."""

    def state_dict(self):
        return {"calls": torch.tensor(self._calls)}

    def load_state_dict(self, state):
        pass


class NoisyDecoding(Byte):
    def decode(self, payload, num_elements):
        return super().decode(payload, num_elements) + 1e-3 * torch.randn(num_elements)


class Larger(Byte):
    def payload_bytes(self, num_elements):
        return num_elements


class LargerOnARing(AsHalves):
    def payload_bytes(self, num_elements):
        return num_elements


class LargerThanItsMost(Byte):
    def payload_bytes(self, num_elements):
        return num_elements // 2 + 2

    def max_payload_bytes(self, num_elements):
        return num_elements


class OwnMean(AbstractLinearCodec):
    """Asks for means, and gives back its own values."""

    biased = True

    def message_elements(self, num_elements):
        return [num_elements]

    def payload_bytes(self, num_elements):
        return 4 * num_elements

    def average(self, x, average_message):
        average_message(x.clone())
        return x.clone(), x.clone()

    def encode(self, x):
        return as_flat_fp32(x).clone().view(torch.uint8)

    def decode(self, payload, num_elements):
        return payload.view(torch.float32)


class OtherLengths(OwnMean):
    def average(self, x, average_message):
        message = torch.cat([x, x[:1]])
        average_message(message)
        return message[:-1], x.clone()


MUTANTS = {
    Smuggling: "another node decodes the payload to other values",
    SmugglingByClass: "another node decodes the payload to other values",
    SmugglingTheScale: "another node decodes the payload to other values (AttributeError",
    DecodingByRank: "another node decodes the payload to other values",
    Negative: "points away from the gradient (cosine -1.00): a sign is turned round",
    NegativeAndUnbiased: "points away from the gradient (cosine -1.00): a sign is turned round",
    Magnitudes: "times a gradient, more than ever came: decode gives something else than was sent",
    Constant: "what arrives has nothing to do with the gradient",
    Thrice: "times a gradient, more than ever came",
    Overflowing: "huge: finite values come out infinite or NaN: something overflows",
    AsHalves: "huge: finite values come out infinite or NaN: something overflows",
    FromTorch: "encode draws random numbers from torch's global generator without a seed",
    FromNumpy: "encode draws random numbers from numpy's global generator without a seed",
    FromPython: "encode draws random numbers from Python's global generator without a seed",
    FromNowhere: "encode draws random numbers without a seed",
    SeedingTorch: "encode draws from torch's global generator, or seeds it",
    Counting: "and state_dict gives nothing",
    HalfKept: "load_state_dict does not bring back what state_dict gave",
    NoisyDecoding: "normal: decoding twice gave different values",
    Larger: "payload_bytes says 20000, encode gave 20004: change payload_bytes, or override max_payload_bytes",
    LargerOnARing: "payload_bytes says 20000, encode gave 40000: change payload_bytes, or declare sums_on_ring = False",
    LargerThanItsMost: "max_payload_bytes says 20000, encode gave 20004",
    OwnMean: "average gives each rank another mean",
    OtherLengths: "average_message is given vectors of other lengths than message_elements says",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_found_and_named(mutant: type[AbstractCodec]) -> None:
    found = violations(mutant)
    assert found and MUTANTS[mutant] in found[0]
    assert len(found) <= 3, "what follows from one mistake is not said again and again"


def test_what_the_mutants_are_made_of_keeps_the_contract() -> None:
    assert violations(Byte) == []


def test_one_mistake_of_many_tensors_is_one_sentence() -> None:
    (text,) = violations(Larger)
    assert text.endswith("(likewise 'empty', 'one element', 'seven elements' and 9 more)")
    assert any(line.startswith("normal: ") for line in violations(NoisyDecoding))


@pytest.mark.parametrize("options", [{"ratio": 0.001}, {"unbiased": True}, {"ratio": 1.0}])
def test_shared_places_need_no_place_in_the_payload(options: dict[str, object]) -> None:
    """Positions that follow from bucket and step are shared by all ranks, and no smuggling."""
    assert violations(lambda: RandomK(RandomKConfig.model_validate(options))) == []


def test_the_generators_of_a_training_are_left_alone() -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    assert violations(Qsgd) == []
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    assert (np.random.get_state()[1] == before[2]).all()
