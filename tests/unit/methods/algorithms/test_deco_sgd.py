"""``deco-sgd`` on several ranks: who agrees on what, when a mean is stepped with, and what is recorded."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.experiment.config.load import load_experiment
from bwbench.methods.algorithms.algorithm_contract import violations
from bwbench.methods.algorithms.deco_choice import DecoSetting, DecoSgdConfig
from bwbench.methods.algorithms.deco_sgd import TELL_BYTES, DecoSgd, EncodedBefore, room_bytes, sparse_bytes
from bwbench.methods.algorithms.small_replica import SHAPES, attached, loss_of, vector
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.collectives.scatter_gather import AllGather
from bwbench.methods.compression.codec import NoCompression
from bwbench.methods.compression.int8 import Int4
from bwbench.methods.compression.sparse import TopK, TopKConfig, entries_at

WINDOW = 5


def plain_sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05)


def with_momentum(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


class Slowly(AllGather):
    """An all-gather that takes its time; the last ranks longer."""

    delay_s = 0.02

    def _average(self, bucket, codec, round_):
        time.sleep(self.delay_s)
        super()._average(bucket, codec, round_)


def adaptive(**options):
    return DecoSgd(DecoSgdConfig(window=WINDOW, most_staleness=3, **options))


@pytest.mark.parametrize("staleness", [0, 1, 4])
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_a_mean_is_stepped_with_so_many_steps_late(num_ranks, staleness):
    """With whole gradients: plain SGD along the mean gradient of ``staleness`` steps ago."""

    def work(group, rank):
        node = attached(
            group, rank, DecoSgd(DecoSgdConfig(ratio=1.0, staleness=staleness)), "all-gather", ["none"], plain_sgd
        )
        gradients, states = [], [vector(node.model)]
        for step in range(1, 9):
            parameters = list(node.model.parameters())
            own = torch.autograd.grad(loss_of(node.model, rank, step), parameters)
            gradients.append(torch.cat([one.reshape(-1) for one in own]))
            node.train(1)
            states.append(vector(node.model))
        node.drain()
        node.running.close()
        return gradients, states

    found = run_ranks(num_ranks, work)
    means = [torch.stack([gradients[step] for gradients, _ in found]).mean(0) for step in range(8)]
    for _, states in found:
        for step in range(8):
            late = step - staleness
            expected = states[step] - (0.05 * means[late] if late >= 0 else 0.0)
            torch.testing.assert_close(states[step + 1], expected, atol=1e-6, rtol=1e-5)
        assert all(torch.equal(one, other) for one, other in zip(states, found[0][1], strict=True))


def test_an_evaluation_changes_nothing():
    """What has arrived by then is stepped with when it is due."""

    def work(group, rank, drains):
        node = attached(group, rank, DecoSgd(DecoSgdConfig(ratio=0.1, staleness=3)), "all-gather")
        for _ in range(4):
            node.train(3)
            if drains:
                before = vector(node.model)
                node.drain()
                assert torch.equal(vector(node.model), before)
                node.running.resume()
        node.drain()
        node.running.close()
        return node.trajectory, node.payload_bytes

    with_drains, without = (
        run_ranks(2, lambda group, rank, drains=drains: work(group, rank, drains)) for drains in (True, False)
    )
    for (one, sent), (other, other_sent) in zip(with_drains, without, strict=True):
        assert sent == other_sent
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_the_adaptive_one_keeps_the_contract(num_ranks):
    found = violations(adaptive, num_ranks, timed=True)
    assert found == [] if num_ranks > 1 else "needs_peers" in found[0]


def test_all_ranks_choose_alike_and_say_why():
    def work(group, rank):
        collective = Slowly()
        collective.delay_s = 0.03 * (rank + 1)
        node = attached(group, rank, adaptive(), collective, ["none"], with_momentum)
        node.train(2)
        node.running.rehearse(0.0)
        node.drain()
        node.running.reset()
        node.running.resume()
        latency_s = node.running.latency_s
        node.trajectory, said = [], []
        for step in range(1, 6 * WINDOW + 1):
            before = node.payload_bytes
            node.running.begin_step()
            torch.autograd.backward(loss_of(node.model, rank, step))
            node.running.gradients_ready()
            report = node.running.finish()
            node.running.update()
            assert node.running.after_update() is None
            node.payload_bytes += report.payload_bytes
            node.trajectory.append(vector(node.model))
            said.append((step, report.chosen, node.running.setting, node.payload_bytes - before))
        node.drain()
        node.running.close()
        return latency_s, said, node.trajectory

    found = run_ranks(4, work)
    for latency_s, said, trajectory in found:
        assert latency_s is not None and 0 < latency_s < 0.5
        assert [chosen for _, chosen, _, _ in said] == [chosen for _, chosen, _, _ in found[0][1]]
        assert all(torch.equal(one, other) for one, other in zip(trajectory, found[0][2], strict=True))
        steps = [step for step, chosen, _, _ in said if chosen is not None]
        assert len(steps) == 5 and all(step % WINDOW in (1, 2, 3) for step in steps)
        for step, chosen, setting, _ in said:
            if chosen is not None:
                assert setting == DecoSetting(chosen.ratio, chosen.staleness)
                assert chosen.compute_s < 0.1 and "of computing" in chosen.why and step > WINDOW


def test_nothing_is_chosen_before_the_latency_is_known():
    """As in scripts, where nobody rehearses: the first window's telling measures it."""

    def work(group, rank):
        node = attached(group, rank, adaptive(), "all-gather")
        chosen = []
        for step in range(1, 4 * WINDOW):
            node.running.begin_step()
            torch.autograd.backward(loss_of(node.model, rank, step))
            node.running.gradients_ready()
            if (found := node.running.finish().chosen) is not None:
                chosen.append((step, found.latency_s))
            node.running.update()
        node.drain()
        node.running.close()
        return chosen

    for chosen in run_ranks(2, work):
        assert chosen[0][0] > 2 * WINDOW and all(latency_s > 0.0 for _, latency_s in chosen)


def test_bytes_are_those_that_traffic_says():
    algorithm = DecoSgd(DecoSgdConfig(ratio=1.0, window=WINDOW, most_staleness=3))  # only the staleness is chosen

    def work(group, rank):
        node = attached(group, rank, algorithm, "all-gather")
        node.train(2 * WINDOW)
        node.drain()
        node.running.close()
        return node.payload_bytes

    traffic = algorithm.traffic(SHAPES, 3, AllGather(), NoCompression)
    assert run_ranks(3, work) == pytest.approx([2 * WINDOW * traffic.payload_bytes_per_rank[0]] * 3)
    assert traffic.in_background
    fixed = DecoSgd(DecoSgdConfig(ratio=1.0, staleness=0)).traffic(SHAPES, 3, AllGather(), NoCompression)
    told = traffic.payload_bytes_per_rank[0] - fixed.payload_bytes_per_rank[0]
    assert told == pytest.approx(2 * TELL_BYTES / WINDOW)
    assert not fixed.in_background


def test_what_has_arrived_and_is_not_due_is_in_a_checkpoint():
    def make():
        return DecoSgd(DecoSgdConfig(ratio=0.2, staleness=3))

    assert violations(make, 3) == [] or all("bytes" in text for text in violations(make, 3))

    def work(group, rank):
        node = attached(group, rank, make(), "all-gather")
        node.train(5)
        node.drain()
        state = node.running.state_dict()
        node.running.close()
        return state

    for state in run_ranks(2, work):
        assert [key for key in state if key.startswith("flight.")] == ["flight.3", "flight.4", "flight.5"]
        assert state["setting"].tolist() == [0.2, 3.0]


@pytest.mark.parametrize("values", [NoCompression, Int4])
def test_there_is_room_for_the_largest_payload(values):
    n, ratios = 10_000, DecoSgdConfig().ratios
    for x in (torch.randn(n), torch.zeros(n).index_fill_(0, torch.arange(0, n, 37), 1.0), torch.full((n,), 2.0)):
        for ratio in ratios:
            top_k = TopK(TopKConfig(ratio=ratio))
            top_k.inner = values()
            size = top_k.encode(x).numel()
            assert size <= sparse_bytes(top_k, entries_at(ratio, n), n) <= room_bytes(top_k, n, ratios)
            assert size == pytest.approx(top_k.payload_bytes(n), rel=0.15) or not bool(x.std() > 0.5)
    ready = EncodedBefore(top_k, top_k.encode(x), 123)
    assert ready.max_payload_bytes(n) == 123 and ready.payload_bytes(n) == size
    assert torch.equal(ready.decode(ready.encode(x), n), top_k.decode(top_k.encode(x), n))


BASE = "name: deco\nnodes: 4\nlink: {bandwidth: 10 Mbit/s}\nmodel: mlp\ndataset: digits\nalgorithm: "


@pytest.mark.parametrize(
    ("rest", "words", "line"),
    [
        ("deco-sgd\ncompression: top-k\n", "chooses the entries itself", 7),
        ("deco-sgd\ncompression: powersgd\n", "chooses the entries itself", 7),
        ("deco-sgd\ncollective: ring\n", "go to all others unmerged", 7),
        ("deco-sgd\ncompression: {int4: {error_feedback: update}}\n", "error_feedback", 7),
        ("deco-sgd\ncompression: {int4: {error_feedback: false}}\n", "keeps the residual of all that is lost", 7),
        ("deco-sgd\ncompute: {step_time: 50 ms}\ndilation: 0.5\n", "would not overlap", 8),
    ],
)
def test_what_it_cannot_be_is_said_at_its_line(tmp_path: Path, rest: str, words: str, line: int) -> None:
    file = tmp_path / "deco.yaml"
    file.write_text(BASE + rest)
    with pytest.raises(ConfigError, match=words) as caught:
        load_experiment(file)
    assert f"{file.name}:{line}" in str(caught.value)


def test_virtual_nodes_have_no_link_to_measure(tmp_path: Path) -> None:
    file = tmp_path / "deco.yaml"
    virtual = BASE.replace("{bandwidth: 10 Mbit/s}", "unshaped") + "{}\ncompute: {{virtual: true}}\n"
    file.write_text(virtual.format("deco-sgd"))
    with pytest.raises(ConfigError, match="give ratio and staleness as numbers"):
        load_experiment(file)
    file.write_text(virtual.format("{deco-sgd: {ratio: 0.01, staleness: 2}}"))
    load_experiment(file)
