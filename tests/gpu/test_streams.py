"""The order between computing and copying on a GPU: nothing is read too early, and nobody waits without need."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from torch import nn

from bwbench import distribute
from bwbench.methods.algorithms.communicator import Communicator
from bwbench.methods.buffers import FiniteSoon, HostSoon, give_back, moved_like, moved_to_host, on_host
from bwbench.methods.collectives.transport import Meter
from bwbench.methods.devices import DONE, device_of

ELEMENTS = 4_000_000
LONG_CYCLES = 600_000_000  # a third of a second or more


def flat(value: float = 0.0) -> torch.Tensor:
    return torch.full((ELEMENTS,), value, device="cuda")


@pytest.fixture
def communicator() -> Communicator:
    return Communicator(Meter(), 2, device_of(flat()))


def test_a_job_reads_what_was_told_before_it_and_not_earlier(communicator: Communicator) -> None:
    values, found = flat(), []
    torch.cuda._sleep(LONG_CYCLES)
    values.fill_(7.0)
    communicator.submit(lambda: found.append(on_host(values).clone()))
    began_s = time.monotonic()
    communicator.wait()
    assert time.monotonic() - began_s > 0.05, "it waited for the sleep before"
    assert bool((found[0] == 7.0).all())
    communicator.close()


def test_a_job_does_not_wait_for_what_is_told_after_it(communicator: Communicator) -> None:
    values, found = flat(), []
    for _ in range(2):  # makes its stream and its pinned memory, which may wait for the GPU
        communicator.submit(lambda: give_back(on_host(values), values))
        communicator.wait()
    values.fill_(3.0)
    communicator.submit(lambda: found.append(on_host(values).clone()))
    torch.cuda._sleep(LONG_CYCLES)
    later = torch.cuda.Event()
    later.record()
    communicator.wait()
    assert not later.query(), "the copy was there while the GPU still computed"
    assert bool((found[-1] == 3.0).all())
    torch.cuda.synchronize()
    communicator.close()


def test_a_copy_that_was_begun_does_not_wait_for_what_is_told_later() -> None:
    values = flat(4.0)
    for _ in range(2):  # pinned memory, which may wait for the GPU
        HostSoon(values).get()
    torch.cuda._sleep(LONG_CYCLES // 10)
    values.fill_(9.0)
    soon = HostSoon(values)
    torch.cuda._sleep(LONG_CYCLES)
    later = torch.cuda.Event()
    later.record()
    assert bool((soon.get() == 9.0).all()) and not later.query()
    torch.cuda.synchronize()


@pytest.mark.parametrize("own_stream", [False, True])
def test_what_a_job_gives_back_is_there_for_what_follows(communicator: Communicator, *, own_stream: bool) -> None:
    stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        for number in range(20):
            values = flat(float(number))

            def job(values: torch.Tensor = values) -> None:
                host = on_host(values)
                host.mul_(2.0).add_(1.0)
                give_back(host, values)

            communicator.submit(job)
            communicator.wait()
            assert float((values + 1.0).sum()) == pytest.approx(ELEMENTS * (2.0 * number + 2.0), rel=1e-6)
    communicator.close()


def test_marks_order_two_threads() -> None:
    """As averaging in the background does: one thread reads what another has changed on its own stream."""
    device, values, seen = device_of(flat()), flat(), []
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG_CYCLES)
        values.fill_(5.0)
        mark = device.mark()

    def read() -> None:
        with device.beside(DONE):
            mark.wait()
            seen.append(values.clone())

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert bool((seen[0] == 5.0).all())


def test_finite_soon_answers_for_what_was_there() -> None:
    values = flat(1.0)
    torch.cuda._sleep(LONG_CYCLES // 10)
    values[17] = float("nan")
    first = FiniteSoon(values)
    values[17] = 0.0
    second = FiniteSoon(values)
    assert not first.get() and second.get()


def test_there_and_back_of_other_types_and_shapes() -> None:
    values = torch.arange(12, dtype=torch.bfloat16, device="cuda").view(3, 4).t()
    host = on_host(values)
    assert host.device.type == "cpu" and host.is_pinned() and host.tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]
    give_back(host * 2, values)
    torch.cuda.synchronize()
    assert values.cpu().flatten().tolist() == [2 * one for one in host.tolist()]
    assert moved_to_host(values).dtype == torch.bfloat16
    assert moved_like(torch.ones(3), values).is_cuda


def test_nothing_is_not_finite_without_a_word() -> None:
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with distribute(model, optimizer, "ring") as handle:
        (model(torch.ones(2, 8, device="cuda")).sum() * float("nan")).backward()
        assert handle.nonfinite is not None and "nan on rank 0" in handle.nonfinite
        optimizer.zero_grad()
        model(torch.ones(2, 8, device="cuda")).sum().backward()
        assert handle.nonfinite is None
        optimizer.step()


def test_autocast_and_a_gradient_scaler() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    scaler = torch.amp.GradScaler("cuda")
    losses = []
    with distribute(model, optimizer, {"diloco": {"period": 3}}) as handle:
        for _ in range(12):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = model(torch.ones(4, 16, device="cuda")).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(float(loss))
        handle.drain()
    assert losses[-1] < losses[0]
