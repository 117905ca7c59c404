"""What scripts do with a model after ``distribute``: copy, save, load, move, replace."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch

from library_table_parts.rig import BWBENCH, LOCAL_SGD, Rig, adamw, batch, case, loss_of, net, sgd, train

DILOCO = {"diloco": {"period": 1, "outer_lr": 1.0, "outer_momentum": 0.0}}
CHANGED = "replaced|changed|moved|dtype|type|no longer|float64|bfloat16|memory|not the model's"


@case("deepcopy of the model after distribute, evaluated")
def _(rig: Rig) -> None:
    copies(rig)


@case("deepcopy of the model after distribute, evaluated, with torch's DDP inside", method="ddp")
def _(rig: Rig) -> None:
    copies(rig)


def copies(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    kept: Any = None
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
        if step == 1:
            kept = copy.deepcopy(model)
    rig.keep(model)
    rig.keep_tensors({"outputs of the copy": kept(batch(0, 99))})


@case("deepcopy of the model after distribute, trained alone")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(3):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)
    alone = copy.deepcopy(model)
    own = sgd(alone)
    for step in range(2):
        own.zero_grad()
        loss_of(alone(batch(0, step))).backward()
        own.step()
    rig.keep_tensors({f"alone {name}": value for name, value in alone.named_parameters()})


@case("deepcopy of the optimizer after distribute")
def _(rig: Rig) -> None:
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model))
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
        if step == 1:  # a copy to go back to
            kept = copy.deepcopy({"model": model, "optimizer": optimizer})
    before = {name: value.clone() for name, value in kept["model"].named_parameters()}
    for parameter in kept["model"].parameters():
        parameter.grad = torch.ones_like(parameter)
    kept["optimizer"].step()
    rig.keep(model)
    rig.keep_tensors({f"copy {name}": value for name, value in kept["model"].named_parameters()})
    assert before


@case("the whole model saved by torch.save and read again")
def _(rig: Rig) -> None:
    saved(rig)


@case("the whole model saved by torch.save and read again, with torch's DDP inside", method="ddp")
def _(rig: Rig) -> None:
    saved(rig)


def saved(rig: Rig) -> None:
    model = net()
    train(rig, model, sgd(model))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    rig.keep(torch.load(file, weights_only=False))


@case("the optimizer pickled whole")
def _(rig: Rig) -> None:
    model = net()
    optimizer = sgd(model)
    train(rig, model, optimizer)
    pickle.loads(pickle.dumps(optimizer))


def reloaded(rig: Rig, method: Any, kind: Any) -> None:
    """Three steps, then everything is made anew from a checkpoint, and three more."""
    model = net()
    state: Any = None
    for part in range(2):
        if part == 1:
            model = net(7)
        optimizer = kind(model)
        forward = rig.distribute(model, optimizer, method)
        if state is not None:
            loaded = torch.load(io.BytesIO(state), weights_only=True)
            model.load_state_dict(loaded["model"])
            optimizer.load_state_dict(loaded["optimizer"])
            if rig.arm == BWBENCH:
                rig.handle.load_state_dict(loaded["handle"])
        for step in range(3):
            optimizer.zero_grad()
            rig.backward(lambda rank: loss_of(forward(batch(rank, 3 * part + step))))
            optimizer.step()
        content = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        if rig.arm == BWBENCH:
            content["handle"] = rig.handle.state_dict()
        file = io.BytesIO()
        torch.save(content, file)
        state = file.getvalue()
        if rig.arm == BWBENCH and part == 0:
            rig.handle.close()
    rig.keep(model)


@case("checkpoint saved and reloaded")
def _(rig: Rig) -> None:
    reloaded(rig, "ring", adamw)


@case("checkpoint saved and reloaded, with local-sgd", **LOCAL_SGD)
def _(rig: Rig) -> None:
    reloaded(rig, None, lambda model: sgd(model, momentum=0.0))


def loading_on(rig: Rig, who: Any, **options: Any) -> None:
    """A checkpoint of model and optimizer read on some ranks only, after ``distribute`` or before it."""
    source = net(3)
    trained = adamw(source)
    for step in range(3):
        trained.zero_grad()
        loss_of(source(batch(0, step))).backward()
        trained.step()
    model = net()
    optimizer = adamw(model)
    forward: Any = None
    if options["after"]:
        forward = rig.distribute(model, optimizer)
    if rig.rank in who:
        model.load_state_dict(source.state_dict())
        optimizer.load_state_dict(trained.state_dict())
    if not options["after"]:
        forward = rig.distribute(model, optimizer)
    for step in range(3):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("checkpoint of model and optimizer read on rank 0 only, before", names="optimizer")
def _(rig: Rig) -> None:
    loading_on(rig, (0,), after=False)


@case("checkpoint of model and optimizer read on all ranks, before")
def _(rig: Rig) -> None:
    loading_on(rig, (0, 1, 2, 3), after=False)


@case("checkpoint of model and optimizer read on all ranks, after")
def _(rig: Rig) -> None:
    loading_on(rig, (0, 1, 2, 3), after=True)


@case("load_state_dict of the model in the middle")
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, sgd(model), before=lambda step: step == 2 and model.load_state_dict(net(3).state_dict()) and None)


@case("load_state_dict of the model in the middle, with local-sgd", **LOCAL_SGD)
def _(rig: Rig) -> None:
    model = net()
    train(
        rig, model, sgd(model, momentum=0.0),
        before=lambda step: step == 2 and model.load_state_dict(net(3).state_dict()) and None,
    )  # fmt: skip


def assigned(rig: Rig, **options: Any) -> None:
    """``assign=True`` makes new parameters: the optimizer must be made anew, as torch says."""
    model = net()
    optimizer: Any = sgd(model, **options)
    forward = rig.distribute(model, optimizer)
    for step in range(4):
        if step == 2:
            model.load_state_dict(net(3).state_dict(), assign=True)
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("load_state_dict(assign=True) after distribute", names=CHANGED)
def _(rig: Rig) -> None:
    assigned(rig)


@case("load_state_dict(assign=True) after distribute, with local-sgd", names=CHANGED, **LOCAL_SGD)
def _(rig: Rig) -> None:
    assigned(rig, momentum=0.0)


def assigned_anew(rig: Rig, **options: Any) -> None:
    """The same with the parameters put into the optimizer, as a careful user does."""
    model = net()
    optimizer: Any = sgd(model, **options)
    forward = rig.distribute(model, optimizer)
    for step in range(4):
        if step == 2:
            model.load_state_dict(net(3).state_dict(), assign=True)
            optimizer.param_groups[0]["params"] = list(model.parameters())
        optimizer.zero_grad()
        model.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)


@case("load_state_dict(assign=True) and new parameters in the optimizer", names=CHANGED)
def _(rig: Rig) -> None:
    assigned_anew(rig)


@case("load_state_dict(assign=True) and new parameters in the optimizer, with local-sgd", names=CHANGED, **LOCAL_SGD)
def _(rig: Rig) -> None:
    assigned_anew(rig, momentum=0.0)


def replaced(rig: Rig, **options: Any) -> None:
    """Pruning, as scripts do it."""
    model = net()

    def before(step: int) -> None:
        if step == 2:
            for parameter in model.parameters():
                parameter.data = torch.where(parameter.data.abs() > 0.1, parameter.data, 0)

    train(rig, model, sgd(model, **options), before=before)


@case("p.data replaced by the user", names=CHANGED)
def _(rig: Rig) -> None:
    replaced(rig)


@case("p.data replaced by the user, with local-sgd", names=CHANGED, **LOCAL_SGD)
def _(rig: Rig) -> None:
    replaced(rig, momentum=0.0)


@case(
    "p.data replaced by the user, with diloco of one step",
    names=CHANGED,
    method=DILOCO,
    options={"compression": "none"},
)
def _(rig: Rig) -> None:
    replaced(rig, momentum=0.0)


@case("values changed in place by the user, with local-sgd", **LOCAL_SGD)
def _(rig: Rig) -> None:
    model = net()

    def before(step: int) -> None:
        if step == 2:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.clamp_(-0.3, 0.3)

    train(rig, model, sgd(model, momentum=0.0), before=before)


def moved(rig: Rig, **options: Any) -> None:
    """``.to(dtype)`` replaces the memory of every parameter."""
    model = net()
    forward = rig.distribute(model, optimizer := sgd(model, momentum=0.0))
    for step in range(4):
        kind = torch.float64 if step >= 2 else torch.float32
        if step == 2:
            model.to(kind)
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step).to(kind))))  # noqa: B023
        optimizer.step()
    rig.keep(model)


@case("model moved by .to(torch.float64) after distribute", names=CHANGED)
def _(rig: Rig) -> None:
    moved(rig)


@case("model moved by .to(torch.float64) after distribute, with local-sgd", names=CHANGED, **LOCAL_SGD)
def _(rig: Rig) -> None:
    moved(rig)


@case("model to another type and back after distribute, with local-sgd", names=CHANGED, **LOCAL_SGD)
def _(rig: Rig) -> None:
    model = net()

    def before(step: int) -> None:
        if step == 2:
            model.half()
            model.float()

    train(rig, model, sgd(model, momentum=0.0), before=before, steps=4)


@case("share_memory() after distribute", names=CHANGED)
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, sgd(model), before=lambda step: step == 2 and model.share_memory() and None)


@case("pruning by torch.nn.utils.prune", names="registered|replaced|changed|new parameter|no longer")
def _(rig: Rig) -> None:
    from torch.nn.utils import prune

    model = net()

    def before(step: int) -> None:
        if step == 2:
            prune.l1_unstructured(model[0], "weight", amount=0.5)

    train(rig, model, sgd(model), before=before)


@case("state_dict has the names that the model had")
def _(rig: Rig) -> None:
    model = net()
    train(rig, model, sgd(model), steps=1)
    rig.keep_tensors(dict(model.state_dict()))


@case("distributed again after close()")
def _(rig: Rig) -> None:
    model = net()
    optimizer = sgd(model)
    train(rig, model, optimizer)
    if rig.arm == BWBENCH:
        rig.handle.close()
    train(rig, model, optimizer)


@case("distributed twice", names="already")
def _(rig: Rig) -> None:
    model = net()
    optimizer = sgd(model)
    train(rig, model, optimizer)
    train(rig, model, optimizer)


@case("trained on alone after close()")
def _(rig: Rig) -> None:
    model = net()
    optimizer = sgd(model)
    train(rig, model, optimizer)
    if rig.arm == BWBENCH:
        rig.handle.close()
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model(batch(0, step))).backward()
        optimizer.step()
    rig.keep(model)


@case("the handle is thrown away")
def _(rig: Rig) -> None:
    model = net()
    optimizer = sgd(model)
    forward = rig.distribute(model, optimizer)
    rig.handle = None
    for step in range(4):
        optimizer.zero_grad()
        rig.backward(lambda rank: loss_of(forward(batch(rank, step))))
        optimizer.step()
    rig.keep(model)
