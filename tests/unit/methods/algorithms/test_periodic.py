"""Local SGD and DiLoCo against the plainest simulation: N models in one process and exact means."""

from __future__ import annotations

import copy
import threading
import time

import pytest
import torch

from bwbench.base.published_models import published_model
from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS
from bwbench.methods.algorithms import Context
from bwbench.methods.algorithms.diloco import Diloco, DilocoConfig, StreamingDiloco, StreamingDilocoConfig, in_fragments
from bwbench.methods.algorithms.local_sgd import LocalSgd, LocalSgdConfig
from bwbench.methods.algorithms.periodic import AbstractPeriodic
from bwbench.methods.algorithms.small_replica import SHAPES, attached, codec_chain, loss_of, replica, sgd, vector
from bwbench.methods.collectives import Members
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.collectives.ring import Ring
from bwbench.methods.compression.chain import nest
from bwbench.methods.traffic import Traffic

STEPS = 18
PERIODIC = [name for name in ALGORITHMS.names() if issubclass(ALGORITHMS.load(name), AbstractPeriodic)]


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


class Simulation:
    """N models that take local steps; ``x`` holds their parameters as rows, in float64 outside the models."""

    def __init__(self, num_nodes, make_optimizer):
        self.models = [replica() for _ in range(num_nodes)]
        self.optimizers = [make_optimizer(model) for model in self.models]

    def local_steps(self, step, average_gradients=False):
        for rank, (model, optimizer) in enumerate(zip(self.models, self.optimizers, strict=True)):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
        if average_gradients:
            for parameters in zip(*(model.parameters() for model in self.models), strict=True):
                mean = torch.stack([p.grad for p in parameters]).mean(0)
                for p in parameters:
                    p.grad = mean.clone()
        for optimizer in self.optimizers:
            optimizer.step()

    @property
    def x(self):
        return torch.stack([vector(model) for model in self.models]).double()

    @x.setter
    def x(self, rows):
        for model, row in zip(self.models, rows, strict=True):
            torch.nn.utils.vector_to_parameters(row.float().clone(), model.parameters())


def simulate(num_nodes, steps, period, tau=0, lr=1.0, momentum=0.0, warmup=0, optimizer=sgd, fragments=None, mix=None):
    """Parameters of every node after every step: ``[step][node, element]``."""
    nodes = Simulation(num_nodes, optimizer)
    agreed = nodes.x[0]
    velocity = torch.zeros_like(agreed)
    sizes = fragments or [agreed.numel()]
    ends = torch.tensor(sizes).cumsum(0).tolist()
    pieces = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    on_its_way = {}
    trajectory = []
    for step in range(1, steps + 1):
        nodes.local_steps(step, average_gradients=step <= warmup)
        if step <= warmup:
            agreed = nodes.x[0]
            trajectory.append(nodes.x)
            continue
        for number, piece in enumerate(pieces):
            for starting in (False, True):
                offset = number * period // len(pieces)
                if starting and (step - warmup - offset) % period == 0:
                    on_its_way[number] = step, nodes.x
                if number in on_its_way and step - on_its_way[number][0] == tau:
                    _, then = on_its_way.pop(number)
                    gradient = (agreed - then).mean(0)[piece]
                    velocity[piece] = momentum * velocity[piece] + gradient
                    agreed[piece] -= lr * (gradient + momentum * velocity[piece])
                    x = nodes.x
                    if tau == 0:
                        x[:, piece] = agreed[piece]
                    elif mix is None:
                        x[:, piece] += agreed[piece] - then[:, piece]
                    else:
                        x[:, piece] = mix * x[:, piece] + (1 - mix) * agreed[piece]
                    nodes.x = x
        trajectory.append(nodes.x)
    return trajectory


def train(num_nodes, make_algorithm, steps=STEPS, collective="ring", codecs=("none",), optimizer=sgd):
    """Every rank's replica after ``steps`` steps, its round on the way left there."""

    def work(group, rank):
        node = attached(group, rank, make_algorithm(), collective, codecs, optimizer)
        node.train(steps)
        node.running.close()
        return node

    return run_ranks(num_nodes, work)


def check(nodes, expected, atol=2e-6):
    for step, rows in enumerate(expected):
        for node, row in zip(nodes, rows, strict=True):
            off = (node.trajectory[step].double() - row).abs().max().item()
            assert off < atol, f"rank {node.rank} is off by {off} after step {step + 1}"


@pytest.mark.parametrize("num_nodes", [2, 3])
@pytest.mark.parametrize(("period", "overlap"), [(1, 0), (4, 0), (5, 2), (5, 5), (1, 1)])
def test_local_sgd_is_the_plain_definition(num_nodes, period, overlap):
    nodes = train(num_nodes, lambda: LocalSgd(LocalSgdConfig(period=period, overlap=overlap)))
    check(nodes, simulate(num_nodes, STEPS, period, overlap))


@pytest.mark.parametrize("num_nodes", [2, 3])
def test_post_local_sgd_averages_gradients_first(num_nodes):
    nodes = train(num_nodes, lambda: LocalSgd(LocalSgdConfig(period=4, warmup=6)), optimizer=adamw)
    check(nodes, simulate(num_nodes, STEPS, 4, warmup=6, optimizer=adamw), atol=1e-5)
    for step in (*range(1, 7), 10, 14, 18):
        assert all(torch.equal(node.trajectory[step - 1], nodes[0].trajectory[step - 1]) for node in nodes)


@pytest.mark.parametrize("num_nodes", [2, 3])
@pytest.mark.parametrize(("period", "overlap"), [(6, 0), (6, 3)])
def test_diloco_is_the_plain_definition(num_nodes, period, overlap):
    options = DilocoConfig(period=period, overlap=overlap)
    nodes = train(num_nodes, lambda: Diloco(options), optimizer=adamw)
    check(nodes, simulate(num_nodes, STEPS, period, overlap, 0.7, 0.9, optimizer=adamw), atol=1e-5)


def test_the_outer_step_is_that_of_torch():
    nodes = train(2, lambda: Diloco(DilocoConfig(period=1, outer_lr=0.3, outer_momentum=0.8)), steps=5)
    model = replica()
    outer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.8, nesterov=True)
    locals_ = Simulation(2, sgd)
    for step in range(1, 6):
        locals_.local_steps(step)
        delta = vector(model) - locals_.x.mean(0).float()
        sizes = [parameter.numel() for parameter in model.parameters()]
        for parameter, piece in zip(model.parameters(), delta.split(sizes), strict=True):
            parameter.grad = piece.view_as(parameter)
        outer.step()
        locals_.x = vector(model).expand(2, -1)
    assert torch.allclose(nodes[0].trajectory[-1], vector(model), atol=2e-6)


@pytest.mark.parametrize("num_nodes", [2, 3])
@pytest.mark.parametrize(("period", "overlap", "fragments"), [(8, 3, 4), (6, 6, 3), (6, 0, 2), (5, 1, 1)])
def test_streaming_diloco_is_the_plain_definition(num_nodes, period, overlap, fragments):
    options = StreamingDilocoConfig(period=period, overlap=overlap, fragments=fragments, mix=0.4)
    nodes = train(num_nodes, lambda: StreamingDiloco(options), optimizer=adamw)
    sizes = [size // 4 for size in nodes[0].running.bucket_bytes]
    assert len(sizes) == fragments
    expected = simulate(num_nodes, STEPS, period, overlap, 0.7, 0.9, optimizer=adamw, fragments=sizes, mix=0.4)
    check(nodes, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("make_algorithm", "round_steps"),
    [
        (lambda: LocalSgd(LocalSgdConfig(period=3)), range(3, STEPS + 1, 3)),
        (lambda: Diloco(DilocoConfig(period=6)), range(6, STEPS + 1, 6)),
    ],
)
@pytest.mark.parametrize(
    ("collective", "codecs"), [("ring", ["fp16"]), ("all-gather", ["threshold"]), ("torch", ["none"])]
)
def test_replicas_are_bit_equal_after_a_round(make_algorithm, round_steps, collective, codecs):
    nodes = train(3, make_algorithm, collective=collective, codecs=codecs)
    for step in range(1, STEPS + 1):
        equal = all(torch.equal(node.trajectory[step - 1], nodes[0].trajectory[step - 1]) for node in nodes)
        assert equal == (step in round_steps)
        assert (nodes[0].running.agreement_step(step) == step) == (step in round_steps)


@pytest.mark.parametrize("overlap", [0, 2, 6, "auto"])
@pytest.mark.parametrize(("algorithm", "options"), [(LocalSgd, {}), (Diloco, {}), (StreamingDiloco, {"fragments": 3})])
def test_payload_over_whole_periods_is_the_estimate(algorithm, options, overlap):
    def work(group, rank):
        ours = algorithm(algorithm.Config(period=6, overlap=overlap, **options))
        node = attached(group, rank, ours, "all-gather", ["fp16"])
        node.train(12)
        node.drain()
        node.running.close()
        return node

    chain = codec_chain("fp16")
    for node in run_ranks(3, work):
        traffic = node.algorithm.traffic(SHAPES, 3, node.collective, lambda: nest(chain))
        assert traffic.in_background == (overlap != 0)
        assert node.payload_bytes == pytest.approx(12 * traffic.payload_bytes_per_rank[node.rank])


MAKERS = {
    "local-sgd": lambda: LocalSgd(LocalSgdConfig(period=5)),
    "post-local-sgd": lambda: LocalSgd(LocalSgdConfig(period=4, warmup=9)),
    "delayed local-sgd": lambda: LocalSgd(LocalSgdConfig(period=4, overlap=4)),
    "diloco": lambda: Diloco(DilocoConfig(period=5)),
    "streaming-diloco": lambda: StreamingDiloco(StreamingDilocoConfig(period=6, overlap=4, fragments=3)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_training_resumes_bit_exactly_in_the_middle_of_a_period(name):
    def work(group, rank):
        whole = attached(group, rank, MAKERS[name](), "all-gather", ["threshold"])
        whole.train(7)
        whole.drain()
        saved = whole.running.state_dict()
        model, optimizer = whole.model.state_dict(), copy.deepcopy(whole.optimizer.state_dict())
        saved_vector = vector(whole.model)
        resumed = attached(group, rank, MAKERS[name](), "all-gather", ["threshold"])
        resumed.model.load_state_dict(model)
        resumed.optimizer.load_state_dict(optimizer)
        resumed.running.load_state_dict({key: value.clone() for key, value in saved.items()})
        resumed.num_steps = 7
        assert torch.equal(vector(resumed.model), saved_vector)
        whole.train(12)
        whole.drain()  # what it averages in the background would meet the other's messages in the same group
        resumed.train(12)
        whole.running.close()
        resumed.running.close()
        return whole.trajectory[7:], resumed.trajectory

    for whole, resumed in run_ranks(3, work):
        assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))


@pytest.mark.parametrize("name", MAKERS)
def test_reset_forgets_everything(name):
    def work(group, rank):
        node = attached(group, rank, MAKERS[name](), "all-gather", ["threshold"])
        model, optimizer = replica().state_dict(), node.optimizer.state_dict()
        node.train(9)
        node.running.rehearse(0.0)
        node.drain()
        first = node.trajectory
        node.model.load_state_dict(model)
        node.optimizer.load_state_dict(optimizer)
        node.optimizer.state.clear()
        node.running.reset()
        node.trajectory, node.num_steps = [], 0
        node.train(9)
        node.drain()
        node.running.close()
        return first, node.trajectory

    for first, again in run_ranks(2, work):
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


class GatedRing(Ring):
    """Notes which exchanges were begun, and lets each pass when its gate is released once more."""

    def __init__(self):
        super().__init__()
        self.begun, self.gate = [], threading.Semaphore(0)

    def _average(self, bucket, codec, round_):
        self.begun.append(round_.tag)
        assert self.gate.acquire(timeout=60)
        super()._average(bucket, codec, round_)


@pytest.mark.parametrize("overlap", [3, "auto"])
def test_a_round_goes_on_while_the_node_computes(overlap):
    def work(group, rank):
        node = attached(group, rank, LocalSgd(LocalSgdConfig(period=4, overlap=overlap)), GatedRing())
        node.train(3)
        for _ in range(3):
            node.train(3)  # begins a round and goes on, though nothing arrives
            node.collective.gate.release()
            node.train(1)
        node.drain()  # with ``auto`` nobody has waited for the last one: on a busy machine it may not have begun
        node.running.close()
        return node.collective.begun

    assert run_ranks(2, work) == [[0, 0, 0]] * 2


def test_whoever_is_early_waits_and_says_so():
    def work(group, rank):
        node = attached(group, rank, LocalSgd(LocalSgdConfig(period=4, overlap=1)), GatedRing())
        node.train(4)
        opening = threading.Timer(0.5, node.collective.gate.release)
        opening.start()
        begun_s = time.monotonic()
        node.train(1)
        took_s = time.monotonic() - begun_s
        node.running.close()
        return node.exposed_s, took_s

    for exposed_s, took_s in run_ranks(2, work):
        assert 0 < exposed_s <= took_s
        assert took_s > 0.4


@pytest.mark.parametrize("overlap", [2, 6, "auto"])
def test_ranks_of_different_speed_begin_the_same_rounds(overlap):
    """The slow rank never makes the fast one wait for a round that the slow one has not begun and will not begin."""

    def work(group, rank):
        options = StreamingDilocoConfig(period=6, overlap=overlap, fragments=3)
        node = attached(group, rank, StreamingDiloco(options))
        for step in range(1, 26):
            node.train(1)
            time.sleep(0.004 * rank)
            if step % 5 == 0:  # an evaluation, in the middle of rounds
                node.drain()
                group.barrier().wait()
        node.running.close()
        return node

    nodes = run_ranks(3, work)
    agreed = [torch.cat([bucket.agreed for bucket in node.running.buckets]) for node in nodes]
    assert all(torch.equal(values, agreed[0]) for values in agreed)


def test_draining_applies_what_is_on_its_way_and_begins_nothing():
    def work(group, rank):
        node = attached(group, rank, LocalSgd(LocalSgdConfig(period=4, overlap=4)), GatedRing())
        node.train(5)
        before = vector(node.model)
        assert node.payload_bytes == 0
        node.collective.gate.release()
        node.drain()
        drained = vector(node.model)
        node.drain()
        assert torch.equal(drained, vector(node.model))
        node.running.close()
        return before, drained, node

    results = run_ranks(2, work)
    expected = simulate(2, 5, 4, tau=1)[-1]
    for rank, (before, drained, node) in enumerate(results):
        assert not torch.equal(before, drained)
        assert torch.allclose(drained.double(), expected[rank], atol=2e-6)
        assert node.collective.begun == [0]
        assert node.payload_bytes > 0


class Breaking(AbstractCollective):
    """Every exchange fails."""

    @classmethod
    def accepts(cls, codec):
        return None

    def traffic(self, num_nodes, bucket_payload_bytes):
        return Traffic.none(num_nodes)

    def _average(self, bucket, codec, round_):
        raise ValueError("the cable is gone")


@pytest.mark.parametrize("name", ["local-sgd", "delayed local-sgd", "streaming-diloco"])
def test_what_fails_in_the_background_surfaces_within_the_period(name):
    def work(group, rank):
        node = attached(group, rank, MAKERS[name](), Breaking())
        with pytest.raises(RuntimeError, match="the cable is gone"):
            node.train(12)
        node.running.close()

    run_ranks(2, work)


@pytest.mark.parametrize("name", MAKERS)
def test_a_lost_peer_is_an_error_and_not_a_hang(name):
    def work(group, rank):
        node = attached(group, rank, MAKERS[name]())
        if rank == 1:
            node.train(2)
            node.running.close()
            return  # its group goes away
        with pytest.raises(RuntimeError):
            node.train(20)

    run_ranks(2, work, timeout_s=60, may_leave=True)


def test_only_exact_collectives_are_accepted():
    class Gossip(Breaking):
        exact = False

    for algorithm in (LocalSgd, Diloco, StreamingDiloco):
        assert "mean over all" in algorithm.accepts(Gossip)
        assert algorithm.accepts(COLLECTIVES.load("ring")) is None
        assert "needs a collective" in algorithm.accepts(COLLECTIVES.load("none"))


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (LocalSgdConfig, {"period": 4, "overlap": 5}),
        (LocalSgdConfig, {"overlap": -1}),
        (DilocoConfig, {"overlap": "soon"}),
        (StreamingDilocoConfig, {"period": 4}),
        (StreamingDilocoConfig, {"period": 8, "fragments": 9}),
    ],
)
def test_options_without_sense_are_refused(config, options):
    with pytest.raises(ValueError, match="overlap|fragments"):
        config(**options)


@pytest.mark.parametrize("model", ["vgg16", "bert-large"])
@pytest.mark.parametrize("name", PERIODIC)
def test_a_shrunk_model_is_cut_into_as_many_buckets_as_the_whole_one(name, model):
    algorithm, whole = ALGORITHMS.load(name)(), published_model(model)
    parts = algorithm.layout(whole.parameter_shapes).parts
    shrunk = algorithm.layout(whole.shrunk(8).parameter_shapes, 8.0).parts
    assert [len(buckets) for buckets in shrunk] == [len(buckets) for buckets in parts]


@pytest.mark.parametrize("shrink", [1.0, 4.0])
def test_a_rank_lays_out_what_is_shrunk_as_it_would_be_whole(shrink):
    side = round(512 / shrink**0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(side, side, bias=False) for _ in range(4)))  # whole 1 MiB each
    collective, members = COLLECTIVES.load("ring")(), Members.all_of(None)
    codec = COMPRESSIONS.load("none")
    context = Context(model, sgd(model), collective, codec, None, None, None, members, shrink=shrink)
    running = LocalSgd(LocalSgdConfig()).attach(context)
    running.close()
    assert running.bucket_bytes == [4 * side**2, 3 * 4 * side**2]


def test_fragments_are_even_and_complete():
    shapes = [(512, 784), (512,), (10, 512), (10,), ()]
    total = sum(torch.Size(shape).numel() for shape in shapes)
    for count in (1, 2, 3, 7, 50):
        layout = in_fragments(shapes, count)
        sizes = [sum(torch.Size(shape).numel() for shape in bucket) for bucket in layout.buckets]
        assert sum(sizes) == total
        assert len(sizes) == count
        assert all(abs(size - total / count) <= 784 for size in sizes)
    assert [len(in_fragments([(3,), ()], count).buckets) for count in (1, 2, 9)] == [1, 2, 4]


def test_fragments_are_the_buckets_of_streaming_diloco():
    with pytest.raises(ValueError, match="each of its fragments is one"):
        StreamingDilocoConfig.model_validate({"bucket": "1 MB"})
