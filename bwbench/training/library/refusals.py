"""What cannot be trained with ``distribute``, and what to do in its place. Each rank looks at its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping

import torch
from torch import nn

from bwbench.base.errors import ConfigError
from bwbench.base.registry import ALGORITHMS
from bwbench.methods.algorithms import AbstractAlgorithm
from bwbench.methods.algorithms.every_step import EveryStep
from bwbench.methods.collectives import AbstractCollective
from bwbench.methods.devices import DIRECT
from bwbench.training.library.host_copies import TYPES
from bwbench.training.library.method import Method

# Classes that average gradients or parameters themselves, by name: few of them are installed, none need be imported.
_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine")
_SENDING_OPTIMIZERS = ("ZeroRedundancyOptimizer", "PostLocalSGDOptimizer", "DistributedOptimizer")


def check_model(model: nn.Module) -> None:
    """Raise ConfigError where the model cannot be trained here."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"the model is a {type(model).__name__}; distribute() takes a torch.nn.Module")
    for name, module in model.named_modules():
        _check_module(name, module)
    for name, parameter in model.named_parameters():
        _check_parameter(f"parameter {name!r}", parameter)
    for name, buffer in model.named_buffers():
        if buffer.is_meta:
            raise ConfigError(_without_values(f"buffer {name!r}"))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ConfigError("the model has no parameter that requires a gradient; freeze parameters after distribute()")
    devices = {parameter.device.type for parameter in trained}
    if len(devices) > 1:
        raise ConfigError(f"the model lies on several kinds of device, {' and '.join(sorted(devices))}; move it to one")


def check_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Raise ConfigError where the optimizer cannot be used here, or is not over the model's parameters."""
    kinds = [kind.__name__ for kind in type(optimizer).__mro__]
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(f"the optimizer is a {kinds[0]}; distribute() takes a torch.optim.Optimizer")
    if needs_closure(optimizer):
        raise ConfigError(
            f"optimizer {kinds[0]} asks for several gradients a step, and peers exchange one; use SGD, Adam or another "
            "that needs one"
        )
    if "SparseAdam" in kinds:
        raise ConfigError("optimizer SparseAdam takes sparse gradients, and means are dense here; use Adam")
    if found := next((kind for kind in kinds if kind in _SENDING_OPTIMIZERS), None):
        raise ConfigError(f"optimizer {found} sends by itself; hand over the optimizer that it is made from")
    own = {id(parameter) for parameter in model.parameters()}
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    strangers = sum(id(parameter) not in own for parameter in held if parameter.requires_grad)
    if strangers:
        raise ConfigError(
            f"the optimizer has {strangers} parameters that are not the model's; make the optimizer from "
            "model.parameters(), after model.to(...), and distribute one model with one optimizer"
        )
    if not any(parameter.requires_grad for parameter in held):
        raise ConfigError("the optimizer has no parameter that requires a gradient; make it from model.parameters()")
    for group in optimizer.param_groups:
        devices = {parameter.device.type for parameter in group["params"]}
        if group.get("capturable") and "cpu" in devices:
            raise ConfigError("capturable=True is for CUDA graphs, and the model is on the CPU; leave it out")


def not_stepped(model: nn.Module, optimizer: torch.optim.Optimizer, method: Method) -> Iterator[str]:
    """What a user should know who may have a second optimizer, where parameters are averaged after the first."""
    stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    left = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in stepped]
    if left and ALGORITHMS.load(method.algorithm.name).mean_of != "gradients":
        yield (
            f"parameter {left[0]!r} ({len(left)} in all) is trainable and not in the optimizer, after whose step "
            f"{method.algorithm.name!r} averages; freeze it, or put it into this optimizer: what another optimizer "
            "does to it is not averaged in time"
        )


def needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether ``step`` has to be given a function that computes the loss again, as that of LBFGS."""
    closure = inspect.signature(inspect.unwrap(type(optimizer).step)).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def check_direct(algorithm: AbstractAlgorithm, parameters: Mapping[str, nn.Parameter]) -> None:
    """Raise ConfigError where an algorithm moves parameters, and two of them lie in the same memory."""
    if type(algorithm) is EveryStep:
        return
    spans = sorted(
        (parameter.untyped_storage().data_ptr(), parameter.storage_offset(), parameter.numel(), name)
        for name, parameter in parameters.items()
        if parameter.numel()
    )
    for (memory, begin, length, name), (other_memory, other_begin, _, other) in zip(spans, spans[1:], strict=False):
        if memory == other_memory and other_begin < begin + length:
            raise ConfigError(
                f"parameters {name!r} and {other!r} share memory without being the same parameter, and "
                f"{type(algorithm).__name__} moves parameters; tie them by assigning one nn.Parameter to both places"
            )


def check_copied(
    algorithm: AbstractAlgorithm, collective: AbstractCollective, parameters: Mapping[str, nn.Parameter]
) -> None:
    """Raise ConfigError where an algorithm needs more of such parameters than their gradients."""
    others = (f"parameter {name!r} is {_type_of(p)}" for name, p in parameters.items() if p.dtype != torch.float32)
    kind = next(iter(parameters.values())).device.type
    what = next(others, f"the model is on a device of kind {kind!r}")
    if collective.wraps_model:
        raise ConfigError(
            f"{what}, where gradients travel as float32 copies; use torch's own DistributedDataParallel instead of "
            "this, or collective='ring'"
        )
    if type(algorithm) is not EveryStep:
        raise ConfigError(
            f"{type(algorithm).__name__} works on the parameters themselves, as float32 on {' or '.join(DIRECT)}, and "
            f"{what}; use an algorithm that averages gradients in every step, such as 'bytegrad', or model.float() "
            "there with torch.autocast"
        )


def _check_module(name: str, module: nn.Module) -> None:
    place = f"module {name!r}" if name else "the model"
    kinds = [kind.__name__ for kind in type(module).__mro__]
    if found := next((kind for kind in _WRAPPERS if kind in kinds), None):
        raise ConfigError(
            f"{place} is a {found}, which averages by itself; hand over the plain model that it was made from"
        )
    if applied := [name for name in _applied(module) if name != "checkpoint"]:
        raise ConfigError(f"{place} went through {applied[0]}(), which averages by itself; hand over the plain model")


def _applied(module: nn.Module) -> list[str]:
    """Which of torch's functions that leave a model's class as it is, such as ``replicate``, have worked on it."""
    kept = [value for key, value in module.__dict__.items() if key.startswith("__composable_api_state_key")]
    return [name for names in kept for name in names if isinstance(name, str)]


def _check_parameter(what: str, parameter: nn.Parameter) -> None:
    if nn.parameter.is_lazy(parameter):
        raise ConfigError(f"{what} has no shape yet; call the model once, then make the optimizer, then distribute()")
    if type(parameter.data) is not torch.Tensor:
        raise ConfigError(
            f"{what} is a {type(parameter.data).__name__}, of which a process may hold a part only; hand over a model "
            "of plain tensors, not sharded by fully_shard() or tensor parallelism"
        )
    if parameter.is_meta:
        raise ConfigError(_without_values(what))
    if parameter.layout != torch.strided:
        raise ConfigError(f"{what} is sparse; hand over a dense one: nn.Parameter(parameter.to_dense())")
    if parameter.requires_grad and parameter.dtype not in TYPES:
        raise ConfigError(f"{what} is {_type_of(parameter)}; call model.float() or freeze it")


def _without_values(what: str) -> str:
    return (
        f"{what} is on the meta device and has no values; call model.to_empty(device='cpu'), initialise it or load its "
        "state, and make the optimizer afterwards"
    )


def _type_of(parameter: torch.Tensor) -> str:
    return str(parameter.dtype).removeprefix("torch.")
