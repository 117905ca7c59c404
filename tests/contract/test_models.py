"""Every registered model keeps the contract on every kind of data, or refuses it in words."""

from __future__ import annotations

import pytest
import torch

from bwbench.base.data_spec import NOTHING, DataSpec
from bwbench.base.errors import ConfigError
from bwbench.base.registry import DATASETS, MODELS
from bwbench.training.models.model import AbstractModel
from bwbench.training.models.model_contract import SPECS, violations


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


# Of the others there is nothing to learn: tests/unit/training/models/test_shapes.py has what they keep.
LEARNING = [name for name in MODELS.names() if NOTHING not in MODELS.load(name).tasks]


def make(name: str) -> AbstractModel:
    model_class = MODELS.load(name)
    return model_class(model_class.Config())


@pytest.mark.parametrize("name", LEARNING)
def test_model_keeps_the_contract(name):
    model, built = make(name), 0
    for spec in SPECS:
        try:
            assert violations(model, spec) == []
            built += 1
        except ConfigError as error:
            assert repr(name) in str(error)
    assert built


@pytest.mark.parametrize("name", MODELS.names())
def test_model_builds_for_every_data_set_of_its_task(name):
    model = make(name)
    for entry in DATASETS:
        dataset_class = DATASETS.load(entry.name)
        spec = dataset_class(dataset_class.Config()).spec()
        if spec.task in model.tasks:
            model.build(spec)
        else:
            with pytest.raises(ConfigError, match="another model or another data set"):
                model.check(spec)


@pytest.mark.parametrize("name", LEARNING)
def test_number_of_parameters_is_the_documented_one(name):
    model = make(name)
    low, high = model.parameter_range
    num_parameters = sum(parameter.numel() for parameter in model.build(model.reference_spec).parameters())
    assert low <= num_parameters <= high
    assert f"{num_parameters:,} parameters" in (type(model).__doc__ or "")


class WithBatchNorm(AbstractModel):
    """Wrong: couples the samples of a batch, and keeps running means."""

    name = "with-batch-norm"

    def _build(self, spec: DataSpec) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(20, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, spec.num_classes)
        )


class WithUnusedParameter(AbstractModel):
    """Wrong: a parameter that no gradient reaches."""

    name = "with-unused"

    def _build(self, spec: DataSpec) -> torch.nn.Module:
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(20, spec.num_classes), torch.nn.Identity())
        model[2].unused = torch.nn.Parameter(torch.zeros(3))
        return model


@pytest.mark.parametrize(("model_class", "finding"), [(WithBatchNorm, "buffers"), (WithUnusedParameter, "no gradient")])
def test_the_contract_finds_what_is_wrong(model_class, finding):
    assert any(finding in text for text in violations(model_class(model_class.Config()), DataSpec((20,), 4)))
