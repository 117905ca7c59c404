"""What every model has to keep, as a check of one model: for the tests here and for models of other people."""

from __future__ import annotations

from collections.abc import Iterator

from bwbench.base.data_spec import CLASSIFICATION, LANGUAGE_MODELLING, DataSpec
from bwbench.methods.deferred import torch
from bwbench.training.models.model import AbstractModel

_BATCH = 3

# One of each kind that a data set may have; the models of a task must refuse it in words or build for it.
SPECS = (
    DataSpec((1, 8, 8), 10),
    DataSpec((1, 28, 28), 10),
    DataSpec((3, 32, 32), 10),
    DataSpec((2, 9, 13), 3),
    DataSpec((20,), 4),
    DataSpec((16,), 65, LANGUAGE_MODELLING),
)


def violations(model: AbstractModel, spec: DataSpec) -> list[str]:
    """Everything that ``model`` does wrong with data of ``spec``, one sentence each; empty where it keeps the contract.

    Raises ConfigError where the model refuses such data, which it may. Leaves torch's global random state changed.
    """
    torch.manual_seed(1)
    module = model.build(spec)
    return [f"{spec}: {text}" for text in _of_module(model, module, spec)]


def example_batch(spec: DataSpec, batch_size: int = _BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs ``[batch_size, *input_shape]`` and targets that fit ``spec``, from torch's global random state."""
    shape = (batch_size, *spec.input_shape)
    if spec.task == LANGUAGE_MODELLING:
        return torch.randint(spec.num_classes, shape), torch.randint(spec.num_classes, shape)
    assert spec.task == CLASSIFICATION
    return torch.randn(shape), torch.randint(spec.num_classes, (batch_size,))


def _of_module(model: AbstractModel, module: torch.nn.Module, spec: DataSpec) -> Iterator[str]:
    if list(module.buffers()):
        yield f"has buffers ({', '.join(name for name, _ in module.named_buffers())}): replicas would not agree on them"
    if bad := [name for name, parameter in module.named_parameters() if parameter.dtype != torch.float32]:
        yield f"parameters that are not fp32: {', '.join(bad)}"
    inputs, targets = example_batch(spec)
    before = inputs.clone()
    logits = module(inputs)
    if tuple(logits.shape) != (*targets.shape, spec.num_classes):
        yield f"gives logits {tuple(logits.shape)} for targets {tuple(targets.shape)}"
        return
    if not torch.equal(inputs, before):
        yield "changes its input"
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, spec.num_classes), targets.reshape(-1))
    torch.autograd.backward(loss)
    for name, parameter in module.named_parameters():
        if parameter.grad is None:
            yield f"{name} gets no gradient: a collective would wait for it for ever"
        elif not bool(parameter.grad.isfinite().all()):
            yield f"{name} gets a gradient that is not finite"
    torch.manual_seed(1)  # all ranks build the same model from the same seed, and see the same in the same input
    again = model.build(spec)
    if any(not torch.equal(one, two) for one, two in zip(module.parameters(), again.parameters(), strict=True)):
        yield "starts from different parameters for the same seed"
    if not torch.equal(again(inputs), logits):
        yield "gives different logits for the same parameters and input (dropout?)"
    torch.manual_seed(2)
    other = model.build(spec)
    if all(torch.equal(one, two) for one, two in zip(module.parameters(), other.parameters(), strict=True)):
        yield "starts from the same parameters whatever the seed"
    if not torch.allclose(again(inputs[:2]), logits[:2], rtol=1e-4, atol=1e-5):
        yield "a sample's logits depend on the other samples of its batch (BatchNorm?)"
