"""MuLoCo is DiLoCo with another optimizer and other defaults; on one node the same with nobody to agree with."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from bwbench.base.component import Component
from bwbench.base.errors import ConfigError
from bwbench.base.plain_data import JsonObject
from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS
from bwbench.experiment.config.method_names import PRESETS, arm_name
from bwbench.experiment.config.resolve import Resolved, resolve, resolve_method
from bwbench.experiment.plan.sending import traffic_of
from bwbench.methods.algorithms.diloco import Muloco, Muloco1, MulocoConfig
from bwbench.methods.algorithms.periodic import OuterStep, SharedBucket
from bwbench.methods.algorithms.small_replica import attached, loss_of, replica, vector
from bwbench.methods.compression.codec import NoCompression
from bwbench.methods.roles import REFERENCE, standing_by_name
from bwbench.training.loop.muon import Muon
from tests.references.periodic import DiLoCo

SHAPES = ((128, 1568), (128,), (10, 128), (10,))
ELEMENTS = sum(math.prod(shape) for shape in SHAPES)


def cell(**changes: object) -> Resolved:
    raw: JsonObject = {
        "nodes": 4,
        "link": {"bandwidth": "10 Mbit/s"},
        "model": "mlp",
        "algorithm": "muloco",
        "optimizer": "muon",
        "limit": {"samples": 5000},
    }
    return resolve({**raw, **changes}, (), Path.cwd())  # type: ignore[arg-type]


def test_the_defaults_are_those_of_its_authors() -> None:
    options = Muloco().options
    assert isinstance(options, MulocoConfig)
    assert (options.period, options.outer_lr, options.outer_momentum, options.overlap) == (30, 0.7, 0.6, 0)
    assert {Component("muloco", options).to_json()[key] for key in ("period", "outer_lr")} == {30, 0.7}
    assert Muloco().outer_step == OuterStep(0.7, 0.6)


def test_the_outer_step_is_that_of_the_paper() -> None:
    """u <- mu u + eta d; x <- x_ref - mu u - eta d."""
    values = torch.randn(50, dtype=torch.float32, generator=torch.Generator().manual_seed(0))
    bucket = SharedBucket(0, values, NoCompression(), Muloco().outer_step, SharedBucket.adopt)
    reference, u = values.double().clone(), torch.zeros(50, dtype=torch.float64)
    for step in range(8):
        values.add_(torch.randn(50, generator=torch.Generator().manual_seed(1 + step)))
        change = reference - values.double()
        bucket.leave()
        bucket.arrive()
        u = 0.6 * u + 0.7 * change
        reference = reference - 0.6 * u - 0.7 * change
        torch.testing.assert_close(values.double(), reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("preset", "collective", "codec"), [("muloco", "ring", "fp16"), ("muloco-int2", "scatter-gather", "int2")]
)
def test_the_presets_are_made_of_what_is_there(preset: str, collective: str, codec: str) -> None:
    found = cell(algorithm=preset)
    assert found.config is not None, found.findings
    parts = found.config.algorithm.name, found.config.collective.name, found.config.compression[0].name
    assert parts == ("muloco", collective, codec)
    assert getattr(found.config.compression[0].options, "error_feedback", True) is True
    assert arm_name(found.config) == preset


@pytest.mark.parametrize(("preset", "bytes_per_element"), [("muloco", 2.0), ("muloco-int2", 1 / 4 + 8 / 512)])
def test_what_a_step_sends_is_a_thirtieth_of_an_exchange(preset: str, bytes_per_element: float) -> None:
    method = resolve_method({"algorithm": preset}, 4).config
    sent = traffic_of(method, SHAPES).total_bytes
    assert sent == pytest.approx(2 * 3 * ELEMENTS * bytes_per_element / 30, rel=5e-3)


@pytest.mark.parametrize("algorithm", ["muloco", "muloco-int2", "muloco-1"])
def test_it_belongs_to_muon(algorithm: str) -> None:
    found = cell(algorithm=algorithm, optimizer={"adamw": {"lr": 0.001}})
    (finding,) = found.findings
    assert finding.loc == ("optimizer",)
    assert "belongs to muon; write 'optimizer: muon', got 'adamw'" in finding.message
    assert cell(algorithm="diloco", optimizer="muon").config is not None  # which takes any


def test_in_a_script_torchs_own_will_do() -> None:
    from bwbench.training.library.method import choose

    weight = [torch.nn.Parameter(torch.zeros(3, 2))]
    kinds = [Muon, *([torch.optim.Muon] if hasattr(torch.optim, "Muon") else [])]
    assert [choose("muloco", None, None, kind(weight), 2).algorithm.name for kind in kinds] == ["muloco"] * len(kinds)
    with pytest.raises(ConfigError, match="belongs to muon"):
        choose("muloco", None, None, torch.optim.SGD(weight, lr=0.1), 2)


def test_on_one_node_it_is_a_reference_without_a_link() -> None:
    found = cell(algorithm="muloco-1")
    assert found.config is not None, found.findings
    assert (found.config.nodes, found.config.link.shaped, found.config.collective.name) == (1, False, "none")
    assert standing_by_name("muloco-1", "none", ["none"]).role == REFERENCE
    collective = COLLECTIVES.load("none")()
    traffic = Muloco1().traffic(SHAPES, 1, collective, COMPRESSIONS.load("none"))
    assert traffic.total_bytes == 0
    assert not {"muloco-1"} & PRESETS.keys() and "muloco-1" in ALGORITHMS


def test_on_one_node_it_is_the_papers_algorithm_with_one_worker() -> None:
    options = {"weight_decay": 0.1, "eps": 1e-4}
    node = attached(
        None,
        0,
        Muloco1(MulocoConfig(period=4)),
        "none",
        ["none"],
        lambda model: Muon(model.parameters(), lr=0.02, **options),
    )
    start = [parameter.detach().double() for parameter in replica().parameters()]
    reference = DiLoCo([start], 0.02, period=4, outer_lr=0.7, outer_momentum=0.6, rule="muon", **options)
    for step in range(1, 21):
        model = replica()
        torch.nn.utils.vector_to_parameters(vector(node.model), model.parameters())
        gradients = torch.autograd.grad(loss_of(model, 0, step), list(model.parameters()))
        reference.step([[gradient.double() for gradient in gradients]])
        node.train(1)
        found = vector(node.model).double()
        expected = torch.cat([tensor.reshape(-1) for tensor in reference.parameters[0]])
        torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-4)
    node.running.close()
