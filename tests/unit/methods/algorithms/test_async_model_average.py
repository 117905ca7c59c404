"""Averaging in the background: what it adds up to, and that it ends whenever and however fast ranks come to an end."""

from __future__ import annotations

import random
import threading
import time

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.algorithms.async_model_average import VOTE_BYTES, AsyncModelAverage, AsyncModelAverageConfig
from bwbench.methods.algorithms.small_replica import SHAPES, attached, vector
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.collectives.ring import Ring
from bwbench.methods.devices import Device, Mark
from bwbench.methods.traffic import Traffic
from tests.simulated import Simulation

HOUR_MS = 3_600_000  # nothing that waits for such an interval ends in time


def algorithm(interval_ms=2.0, warmup_steps=0):
    return AsyncModelAverage(AsyncModelAverageConfig(sync_interval=f"{interval_ms} ms", warmup_steps=warmup_steps))


def shift(node, amount):
    """Change all weights, as an optimizer would."""
    with node.running._background.weights_held(), torch.no_grad():
        for parameter in node.model.parameters():
            parameter.add_(amount)


@pytest.mark.parametrize("num_ranks", [2, 3, 5])
def test_without_training_all_meet_at_the_mean(num_ranks):
    def work(group, rank):
        node = attached(group, rank, algorithm())
        node.drain()
        shift(node, float(rank))
        node.running.resume()
        deadline = time.monotonic() + 60
        while node.running._background.rounds < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        node.drain()
        node.running.close()
        return vector(node.model)

    expected = Simulation(1).x[0] + (num_ranks - 1) / 2
    for weights in run_ranks(num_ranks, work):
        assert (weights - expected).abs().max() < 1e-5


class Marking(Device):
    """Remembers the marks that were set."""

    def __init__(self):
        self.marks = []

    def mark(self):
        self.marks.append(Mark())
        return self.marks[-1]


def test_averaging_begins_behind_weights_that_were_loaded_meanwhile():
    def work(group, rank):
        node = attached(group, rank, algorithm(HOUR_MS))
        node.drain()
        background = node.running._background
        background._device = Marking()
        node.running.load_state_dict(node.running.state_dict())
        node.running.resume()
        loaded = background._touched
        node.drain()
        node.running.close()
        return loaded is background._device.marks[0]

    assert all(run_ranks(2, work))


class Gate(Ring):
    """A ring that holds back its exchanges while closed."""

    def __init__(self):
        super().__init__()
        self.entered = threading.Event()
        self.is_open = threading.Event()

    def _average(self, bucket, codec, round_):
        self.entered.set()
        assert self.is_open.wait(60)
        super()._average(bucket, codec, round_)


@pytest.mark.parametrize("num_ranks", [2, 3, 5])
def test_equals_the_plain_definition_where_rounds_lie_between_known_steps(num_ranks):
    rounds, steps = 4, 3  # in each round so many before the copy is taken, and as many while the mean is on its way

    def work(group, rank):
        gate = Gate()
        node = attached(group, rank, algorithm(1), gate)
        node.drain()
        for _ in range(rounds):
            node.train(steps)
            gate.entered.clear()
            gate.is_open.clear()
            node.running.resume()
            assert gate.entered.wait(60)
            ending = threading.Thread(target=node.drain)
            ending.start()  # no second round
            while not node.running._background._told_to_end():
                time.sleep(0.001)
            node.train(steps)
            gate.is_open.set()
            ending.join(60)
        node.running.close()
        return vector(node.model), node.payload_bytes

    nodes = Simulation(num_ranks)
    for number in range(rounds):
        for step in range(1, 2 * steps + 1):
            if step == steps + 1:
                copy = nodes.x
            nodes.compute_gradients(2 * steps * number + step)
            nodes.update()
        nodes.x = nodes.x + copy.mean(0) - copy
    results = run_ranks(num_ranks, work)
    assert (torch.stack([weights for weights, _ in results]) - nodes.x).abs().max() < 1e-5
    estimate = algorithm(100).traffic(SHAPES, num_ranks, Ring(), COMPRESSIONS.load("none"))  # a round a step
    assert estimate.in_background
    for rank, (_, payload_bytes) in enumerate(results):
        votes = (rounds + 1) * (num_ranks - 1) * VOTE_BYTES  # those that end a stretch; the first one had no round
        assert payload_bytes - votes == pytest.approx(rounds * estimate.payload_bytes_per_rank[rank], rel=0.02)


class Recording(Ring):
    """Remembers what it was given and what came out."""

    def __init__(self):
        super().__init__()
        self.rounds = []

    def _average(self, bucket, codec, round_):
        copy = bucket.clone()
        super()._average(bucket, codec, round_)
        self.rounds.append((copy, bucket.clone()))


@pytest.mark.parametrize("num_ranks", [2, 3, 5])
def test_every_difference_counts_once_whenever_it_arrives(num_ranks):
    """Replays each rank from what it saw: weights change by its own updates and by mean minus copy, nothing else."""
    steps = 30

    def work(group, rank):
        node = attached(group, rank, algorithm(1), Recording())
        rng = random.Random(rank)
        for _ in range(steps):
            time.sleep(0.004 * rng.random() * (rank + 1))
            node.train(1)
        while len(node.collective.rounds) < 4:  # however seldom the machine lets threads have their turn
            time.sleep(0.001)
        node.drain()
        node.running.close()
        return [*node.trajectory, vector(node.model)], node.collective.rounds

    results = run_ranks(num_ranks, work)
    numbers = {len(rounds) for _, rounds in results}
    assert len(numbers) == 1
    assert numbers.pop() > 3
    for number, seen in enumerate(zip(*(rounds for _, rounds in results), strict=True)):
        mean = torch.stack([copy for copy, _ in seen]).mean(0)
        assert all((found - mean).abs().max() < 1e-5 for _, found in seen), number
    order = bucket_order()
    for rank, (trajectory, rounds) in enumerate(results):
        differences = [(mean - copy)[order] for copy, mean in rounds]
        alone = Simulation(num_ranks)
        applied, seen = 0, alone.x[rank]
        for step, weights in enumerate(trajectory, 1):
            alone.x = seen.expand(num_ranks, -1)
            if step <= steps:
                alone.compute_gradients(step)
                alone.update()
            remaining = weights - alone.x[rank]
            while remaining.abs().max() > 1e-5 and applied < len(differences):
                remaining = remaining - differences[applied]
                applied += 1
            assert remaining.abs().max() < 1e-5, (rank, step)
            seen = weights
        assert sum(d.abs().max() > 2e-5 for d in differences[applied:]) == 0


def bucket_order():
    """Where each entry of ``vector`` lies in a bucket, which has the last parameter first."""
    lengths = [torch.Size(shape).numel() for shape in SHAPES]
    where, offset = [], 0
    for length in reversed(lengths):
        where.insert(0, torch.arange(offset, offset + length))
        offset += length
    return torch.cat(where)


@pytest.mark.parametrize("num_ranks", [2, 3, 5])
def test_ranks_of_very_different_speed_drain_at_different_times(num_ranks):
    def work(group, rank):
        node = attached(group, rank, algorithm(5))
        rng = random.Random(100 + rank)
        for _ in range(4):
            for _ in range(5):
                time.sleep(0.05 * rng.random() if rank == num_ranks - 1 else 0)
                node.train(1)
            node.drain()
            group.barrier().wait()  # nothing is on its way: evaluations follow
            node.running.resume()
        node.drain()
        node.drain()
        node.running.close()

    run_ranks(num_ranks, work)


@pytest.mark.parametrize("interval_ms", [0.1, HOUR_MS])
@pytest.mark.parametrize("num_ranks", [2, 3, 5])
def test_ends_right_after_the_start(num_ranks, interval_ms):
    def work(group, rank):
        node = attached(group, rank, algorithm(interval_ms))
        for pause_s in (0.05, 0.0, 0.02, 0.0):
            time.sleep(pause_s * rank)
            node.drain()
            time.sleep(pause_s * (num_ranks - rank))
            node.running.resume()
        node.drain()
        node.running.close()
        return not node.running._background._thread.is_alive()

    assert all(run_ranks(num_ranks, work))  # nobody waits for an interval to pass


def test_others_go_on_training_while_one_has_drained():
    drained = threading.Event()

    def work(group, rank):
        node = attached(group, rank, algorithm(1))
        if rank == 0:
            node.train(3)
            node.drain()
            drained.set()
        else:
            assert drained.wait(60)  # which rank 0 reaches though the others have not drained
            weights = vector(node.model)
            node.train(3)
            assert not torch.equal(weights, vector(node.model))
            node.drain()
        node.running.close()

    run_ranks(3, work)


def test_a_close_that_nobody_expects_returns():
    def work(group, rank):
        node = attached(group, rank, algorithm(HOUR_MS))
        if rank == 0:
            node.running.close()
            node.running.close()

    run_ranks(2, work)


def test_warm_up_averages_gradients():
    def work(group, rank):
        node = attached(group, rank, algorithm(1, warmup_steps=4))
        node.train(3)
        sent = node.payload_bytes
        node.drain()  # an evaluation within the warm-up: nobody votes
        assert node.running._background.rounds == 0
        assert node.payload_bytes == sent > 0
        node.running.resume()
        node.train(1)
        assert torch.equal(node.trajectory[-1], vector(node.model))
        deadline = time.monotonic() + 60
        while node.running._background.rounds < 1 and time.monotonic() < deadline:
            time.sleep(0.001)
        node.drain()
        node.running.close()
        return node.trajectory[3], node.running._background.rounds

    nodes = Simulation(3)
    for step in range(1, 5):
        nodes.compute_gradients(step)
        nodes.average_gradients()
        nodes.update()
    for weights, rounds in run_ranks(3, work):
        assert rounds > 0
        assert (weights - nodes.x[0]).abs().max() < 1e-5


@pytest.mark.parametrize("warmup_steps", [0, 1, 2, 5])
def test_the_loops_own_warm_up_leaves_no_trace(warmup_steps):
    def work(group, rank):
        node = attached(group, rank, algorithm(1, warmup_steps))
        before = {key: value.clone() for key, value in node.model.state_dict().items()}
        node.train(2)
        node.running.rehearse(0.0)
        node.drain()
        node.model.load_state_dict(before)
        node.optimizer.state.clear()
        node.running.reset()
        assert node.drain() is None
        assert node.running.state_dict()["num_steps"] == 0
        assert all(not pending.any() for pending in node.running._background._pending)
        node.running.resume()
        node.train(1)
        node.drain()
        assert node.running.state_dict()["num_steps"] == 1
        node.running.close()
        return vector(node.model)

    run_ranks(3, work)


class Breaking(AbstractCollective):
    @classmethod
    def accepts(cls, codec):
        return None

    def traffic(self, num_nodes, bucket_payload_bytes):
        return Traffic.none(num_nodes)

    def _average(self, bucket, codec, round_):
        raise ValueError("the cable is gone")


def test_a_failure_surfaces_at_the_next_step_and_in_drain():
    def work(group, rank):
        node = attached(group, rank, algorithm(1), Breaking())
        with pytest.raises(RuntimeError, match="the cable is gone"):
            for _ in range(10_000):
                node.train(1)
                time.sleep(0.005)
        with pytest.raises(RuntimeError, match="the cable is gone"):
            node.drain()
        node.running.close()

    run_ranks(2, work)


def until_it_fails(node):
    with pytest.raises(RuntimeError, match="averaging in the background failed"):
        for _ in range(10_000):
            node.train(1)
            time.sleep(0.005)


def test_a_peer_that_goes_away_ends_in_an_error():
    def work(group, rank):
        if rank == 0:
            until_it_fails(attached(group, rank, algorithm(1)))

    run_ranks(2, work, may_leave=True)


@pytest.mark.thorough  # waits for the whole limit, which has to be long enough for the ranks to meet on a busy machine
def test_a_peer_that_never_comes_ends_in_an_error():
    given_up = threading.Event()

    def work(group, rank):
        if rank == 1:
            assert given_up.wait(120)
            return
        until_it_fails(attached(group, rank, algorithm(1)))
        given_up.set()

    run_ranks(2, work, timeout_s=10)


def test_stops_only_at_evaluations():
    def work(group, rank):
        node = attached(group, rank, algorithm())
        node.drain()
        node.running.close()
        return node.running.agreement_step(7)

    assert run_ranks(2, work) == [None, None]


def test_codecs_that_would_damage_weights_are_refused():
    assert AsyncModelAverage.accepts_codec(COMPRESSIONS.load("fp16")) is None
    assert AsyncModelAverage.accepts_codec(COMPRESSIONS.load("top-k")) is not None
    with pytest.raises(ConfigError, match="low-precision-decentralized"):
        run_ranks(2, lambda group, rank: attached(group, rank, algorithm(), "all-gather", ["threshold"]))


def test_the_estimate_counts_at_most_a_round_a_step():
    def sent(interval_ms):
        return algorithm(interval_ms).traffic(SHAPES, 4, Ring(), COMPRESSIONS.load("none")).payload_bytes_per_rank[0]

    assert sent(1) == sent(100)
    assert sent(500) == pytest.approx(sent(100) / 5)
