"""A model of shapes: its gradients appear when they are due, with and without memory, and look like real ones."""

from __future__ import annotations

import time

import pytest
import torch

from bwbench.base.model_shapes import Layer, ModelShapes
from bwbench.training.models.shapes import Shapes, ShapesConfig
from bwbench.training.models.shapes_module import ShapesModule
from bwbench.training.models.synthetic_gradients import SyntheticGradients, pattern, spectrum_of

MODEL = ModelShapes("m", (Layer("a", ((8, 3), (8,)), 1.0), Layer("act", (), 1.0), Layer("b", ((4, 8), (4,)), 2.0)))


def backward(module: torch.nn.Module) -> float:
    loss = torch.nn.functional.cross_entropy(module(torch.zeros(1, 0)), torch.zeros(1, dtype=torch.int64))
    torch.autograd.backward(loss)
    return loss.item()


@pytest.mark.parametrize("in_memory", [True, False])
def test_gradients_appear_when_their_layers_share_of_the_pass_is_over(in_memory: bool) -> None:
    module = ShapesModule(MODEL, ShapesConfig(backward=0.5), in_memory=in_memory)
    backward(module)  # torch imports what it needs for either kind of memory
    module.begin_step(1.2)
    seen: list[tuple[int, float]] = []
    for index, parameter in enumerate(module.parameters()):
        parameter.register_post_accumulate_grad_hook(lambda _, i=index: seen.append((i, time.monotonic() - began_s)))
    began_s = time.monotonic()
    assert backward(module) == 0.0
    assert [index for index, _ in seen[:2]] != [0, 1] and {index for index, _ in seen[:2]} == {2, 3}
    due_s = {0: 0.6, 1: 0.6, 2: 0.3, 3: 0.3}  # the layer between computes as well
    for index, at_s in seen:
        assert due_s[index] <= at_s < due_s[index] + 0.25  # of a busy machine


def test_without_memory_parameters_have_none_and_gradients_are_written_alike() -> None:
    held, lean = (ShapesModule(MODEL, ShapesConfig(), rank=1, in_memory=kept) for kept in (True, False))
    for module in (held, lean):
        module.begin_step(None)
        backward(module)
    for index, (one, two) in enumerate(zip(held.parameters(), lean.parameters(), strict=True)):
        assert two.is_meta and two.grad is not None and two.grad.is_meta
        written = torch.empty(one.numel())
        lean.write_gradient(index, written)
        assert one.grad is not None and torch.equal(one.grad.flatten(), written)


def test_micro_steps_add_up_to_the_gradient_that_is_written() -> None:
    once = ShapesModule(MODEL, ShapesConfig(), rank=1)
    parts = ShapesModule(MODEL, ShapesConfig(), rank=1, accumulate=4)
    for module, micro_steps in ((once, 1), (parts, 4)):
        module.begin_step(None)
        for _ in range(micro_steps):
            backward(module)
    for index, (one, sum_of_four) in enumerate(zip(once.parameters(), parts.parameters(), strict=True)):
        written = torch.empty(one.numel())
        parts.write_gradient(index, written)
        assert one.grad is not None and sum_of_four.grad is not None
        assert torch.equal(one.grad.flatten(), written)
        torch.testing.assert_close(sum_of_four.grad, one.grad)


def test_of_a_shrunk_model_as_large_a_share_crosses_a_threshold() -> None:
    model = ModelShapes("m", (Layer("a", ((1024, 256),), 1.0), Layer("b", ((512, 512),), 1.0)))
    found = []
    for shrink in (1.0, 8.0):
        module = ShapesModule(model, ShapesConfig(), shrink=shrink, in_memory=False)
        parts = [torch.empty(parameter.numel()) for parameter in module.parameters()]
        for index, part in enumerate(parts):
            module.write_gradient(index, part)
        found.append(torch.cat(parts))
    whole, shrunk = found
    assert len(whole) == 8 * len(shrunk) and whole.norm().item() == pytest.approx(1.0, rel=1e-4)
    rms = whole.square().mean().sqrt().item()
    assert shrunk.square().mean().sqrt().item() == pytest.approx(rms, rel=1e-4)
    for threshold in (rms, 2.5 * rms):
        share, of_shrunk = ((values.abs() > threshold).float().mean().item() for values in found)
        assert of_shrunk == pytest.approx(share, rel=0.25)


def test_ranks_and_steps_have_gradients_of_their_own_with_the_same_spectrum() -> None:
    shapes = [(64, 48), (64,)]
    gradients = SyntheticGradients(shapes, decay=1.0, tail=0.5, rms=0.1)
    found = {}
    for step in (1, 2):
        for rank in (0, 1):
            found[step, rank] = torch.empty(64 * 48)
            gradients.write(0, step, rank, found[step, rank])
    first = found.pop((1, 0))
    assert first.square().mean().sqrt().item() == pytest.approx(0.1, rel=1e-5)
    values = torch.linalg.svdvals(first.view(64, 48))
    for other in found.values():
        assert not torch.equal(first, other)
        assert torch.allclose(torch.linalg.svdvals(other.view(64, 48)), values, rtol=1e-4)
        assert torch.equal(other.sort().values, first.sort().values)


def test_a_tensor_larger_than_a_pattern_repeats_its_rows() -> None:
    rows, cols = 700, 4096
    gradients = SyntheticGradients([(rows, cols)], decay=1.0, tail=0.5, rms=1.0)
    out = torch.full((rows * cols,), float("nan"))
    gradients.write(0, 3, 1, out)
    matrix = out.view(rows, cols)
    assert bool(matrix.isfinite().all()) and torch.equal(matrix[:444], matrix[256:])


def test_decay_and_tail_make_the_spectrum_and_the_tails() -> None:
    white, usual, steep = (spectrum_of(pattern(256, 256, decay, 0.0)) for decay in (0.0, 1.0, 2.0))
    assert white.effective_rank > 0.7 * 256 > 120 > usual.effective_rank > 2 * steep.effective_rank
    assert white.kurtosis == pytest.approx(3, abs=0.5)
    light, heavy = (spectrum_of(pattern(256, 256, 1.0, tail)) for tail in (0.0, 1.0))
    assert heavy.kurtosis > 5 * light.kurtosis and heavy.top_percent > 2 * light.top_percent
    assert light.rank == 256


def test_a_vector_and_a_number_have_patterns_too() -> None:
    gradients = SyntheticGradients([(10,), ()], decay=1.0, tail=0.5, rms=1.0)
    for index, length in enumerate((10, 1)):
        out = torch.full((length,), float("nan"))
        gradients.write(index, 1, 0, out)
        assert bool(out.isfinite().all())


def test_the_model_has_the_shapes_that_it_names() -> None:
    model = Shapes(ShapesConfig(of="resnet50"))
    module = model.build(model.reference_spec)
    assert sum(parameter.numel() for parameter in module.parameters()) == 25_557_032
    assert model.shapes().name == "resnet50"
