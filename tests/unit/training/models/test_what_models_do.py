"""What is particular to single models, and that the demo's model learns as fast as the demo needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from bwbench.base.data_spec import LANGUAGE_MODELLING, DataSpec
from bwbench.training.datasets.digits import Digits
from bwbench.training.datasets.partition import IidReshuffled
from bwbench.training.loop.optimizers import Sgd
from bwbench.training.models.char_transformer import CharTransformer
from bwbench.training.models.cnn import Cnn
from bwbench.training.models.mlp import Mlp


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_no_component_needs_torch_sklearn_or_pandas_to_be_imported_or_asked():
    code = """
import sys
from bwbench.base.registry import DATASETS, MODELS, OPTIMIZERS, PARTITIONS
for registry in (DATASETS, MODELS, OPTIMIZERS, PARTITIONS):
    for entry in registry:
        component = registry.load(entry.name)
        component = component(component.Config())
        if registry is DATASETS:
            component.spec()
assert not {"torch", "sklearn", "pandas", "scipy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=Path(__file__).parents[4])


def test_a_character_knows_nothing_of_those_after_it():
    options = CharTransformer.Config(embedding=16, heads=2, layers=2)
    model = CharTransformer(options).build(DataSpec((12,), 65, LANGUAGE_MODELLING))
    text = torch.randint(65, (2, 12))
    changed = text.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 65
    before, after = model(text), model(changed)
    assert torch.allclose(before[:, :7], after[:, :7], atol=1e-6)
    assert not torch.allclose(before[:, 7:], after[:, 7:], atol=1e-3)
    assert torch.allclose(model(text[:, :5]), before[:, :5], atol=1e-6)  # shorter pieces do as well


def test_heads_must_divide_the_embedding():
    with pytest.raises(ValidationError, match="embedding 100 is not a multiple of heads 3"):
        CharTransformer.Config(embedding=100, heads=3)


def test_widths_change_the_size():
    digits = Digits(Digits.Config()).spec()
    assert count(Cnn(Cnn.Config(width=8)).build(digits)) == 10_906
    assert count(Cnn(Cnn.Config(width=20, hidden=0)).build(digits)) == 9_170
    assert count(Mlp(Mlp.Config(hidden=[5])).build(digits)) == 64 * 5 + 5 + 5 * 10 + 10


def test_a_cnn_of_nine_thousand_parameters_learns_digits_in_fifty_steps():
    """What configs/ and docs/ recommend where every byte costs: 128 samples a step."""
    torch.manual_seed(0)
    dataset = Digits(Digits.Config())
    splits = dataset.load(Path("/"))
    inputs, targets = torch.from_numpy(splits.train.inputs), torch.from_numpy(splits.train.targets)
    model = Cnn(Cnn.Config(width=20, hidden=0)).build(dataset.spec())
    optimizer = Sgd(Sgd.Config(lr=0.05, momentum=0.9)).build(model.parameters())
    partition = IidReshuffled(IidReshuffled.Config())
    order = np.concatenate([partition.order(splits.train.targets, 1, 0, epoch, 0)[:1280] for epoch in range(5)])
    for step in range(50):
        batch = torch.from_numpy(order[128 * step : 128 * (step + 1)])
        optimizer.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch]))
        optimizer.step()
    with torch.no_grad():
        hits = model(torch.from_numpy(splits.validation.inputs)).argmax(-1) == torch.from_numpy(
            splits.validation.targets
        )
    assert hits.float().mean() > 0.93
