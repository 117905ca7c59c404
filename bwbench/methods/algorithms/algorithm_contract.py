"""What every algorithm has to keep, as a check of one algorithm: for the tests here and for those of other people."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bwbench.base.registry import COLLECTIVES, OPTIMIZERS
from bwbench.methods.algorithms.algorithm import AbstractAlgorithm
from bwbench.methods.algorithms.small_replica import SHAPES, SmallReplica, attached, loss_of, replica, vector
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.methods.compression.codec import NoCompression
from bwbench.methods.deferred import dist, nn, torch

MakeAlgorithm = Callable[[], AbstractAlgorithm]

STEPS = 12
_BEFORE, _AFTER = 5, 7  # steps before a checkpoint and behind it
_LOOKED_AHEAD = 30  # steps whose next agreement is asked for
_TIMEOUT_S = 60.0


def collective_for(algorithm: type[AbstractAlgorithm]) -> str | None:
    """The collective that the algorithm prefers, else the first one that it accepts; None where only torch's is left.

    DistributedDataParallel counts its groups by process, so that ranks in threads cannot use it.
    """
    names = [algorithm.preferred_collective] if algorithm.preferred_collective else []
    for name in (*names, "ring", *COLLECTIVES.names()):
        collective = COLLECTIVES.load(name)
        if algorithm.accepts(collective) is None and not collective.wraps_model:
            return name
    return None


def violations(
    make: MakeAlgorithm, num_nodes: int = 2, collective: str | None = None, *, timed: bool = False
) -> list[str]:
    """Everything that an algorithm does wrong, one sentence each; empty where it keeps the contract.

    Ranks are threads that train a tiny model for a few steps, and talk through gloo on loopback.

    Args:
        make: gives a new one each time, with the same options: such that something happens within a few steps.
        num_nodes: how many train together.
        collective: by its name; None for the one that ``collective_for`` finds.
        timed: how often it exchanges depends on the clock, so that neither bytes nor results can be told beforehand.
    """
    found_name = collective or collective_for(type(make()))
    if found_name is None:
        return ["accepts no collective but torch's, which ranks in threads cannot use"]
    name: str = found_name
    if (num_nodes == 1) == make().needs_peers:
        return [f"{num_nodes} node(s): needs_peers says that this makes no sense"]
    try:
        trials = run_ranks(num_nodes, lambda group, rank: _Training(make, name, timed).on(group, rank), _TIMEOUT_S)
        return list(_judge(make(), name, trials, timed=timed))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


@dataclass
class _Training:
    """What one rank has seen.

    Attributes:
        trained: the replica after ``STEPS`` steps.
        agreements: the step of the next agreement, from each step on.
        again: parameters after each of some steps, and the same after a reset.
        resumed: the same going on, and from a checkpoint.
        wrong: what was seen to be wrong on the way.
    """

    make: MakeAlgorithm
    collective: str
    timed: bool
    agreements: list[int | None] = field(default_factory=list)
    again: list[list[torch.Tensor]] = field(default_factory=list)
    resumed: list[list[torch.Tensor]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def on(self, group: dist.ProcessGroup, rank: int) -> _Training:
        """Try everything on a rank of ``group``, in the same order on all."""
        self._group, self._rank = group, rank
        self._train()
        self._ask_for_agreements()
        if not self.timed:
            self._start_again()
            self._resume()
        return self

    def _replica(self) -> SmallReplica:
        algorithm = self.make()
        optimizer = OPTIMIZERS.load((algorithm.optimizers or ("sgd",))[0])

        def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
            built: torch.optim.Optimizer = optimizer(optimizer.Config(lr=0.01)).build(model.parameters())
            return built

        return attached(self._group, self._rank, algorithm, self.collective, ["none"], make_optimizer)

    def _train(self) -> None:
        """As the loop does: warm up, start anew, train, drain, end."""
        node = self.trained = self._replica()
        optimizer = copy.deepcopy(node.optimizer.state_dict())
        node.train(2)
        node.running.rehearse(0.0)
        node.drain()
        _put_back(node, optimizer)
        before = self._loss(node)
        for _ in range(STEPS):
            node.train(1)
        node.drain()
        drained = vector(node.model)
        if node.running.drain() != 0 or not torch.equal(vector(node.model), drained):
            self.wrong.append("draining a second time sends or changes something")
        if not self._loss(node) < before:
            self.wrong.append(f"nothing was learnt in {STEPS} steps")
        node.running.close()
        node.running.close()

    def _ask_for_agreements(self) -> None:
        node = self._replica()
        self.agreements = [node.running.agreement_step(step) for step in range(1, _LOOKED_AHEAD)]
        node.drain()
        node.running.close()

    def _start_again(self) -> None:
        node = self._replica()
        optimizer = copy.deepcopy(node.optimizer.state_dict())
        node.train(_AFTER)
        node.drain()
        first = node.trajectory
        _put_back(node, optimizer)
        node.train(_AFTER)
        node.drain()
        node.running.close()
        self.again = [first, node.trajectory]

    def _resume(self) -> None:
        whole, resumed = self._replica(), self._replica()
        whole.train(_BEFORE)
        whole.drain()
        state = {key: value.clone() for key, value in whole.running.state_dict().items()}
        resumed.drain()
        resumed.model.load_state_dict(whole.model.state_dict())
        resumed.optimizer.load_state_dict(copy.deepcopy(whole.optimizer.state_dict()))
        resumed.running.load_state_dict(state)
        resumed.num_steps = _BEFORE
        for node in (whole, resumed):  # one after the other: what is in flight has the tags of both
            node.running.resume()
            node.train(_AFTER)
            node.drain()
            node.running.close()
        self.resumed = [whole.trajectory[_BEFORE:], resumed.trajectory]

    def _loss(self, node: SmallReplica) -> float:
        """Mean over the batches of all ranks that are trained on."""
        with torch.no_grad():
            every = ((rank, step) for rank in range(self._group.size()) for step in range(1, STEPS + 1))
            return float(torch.stack([loss_of(node.model, rank, step) for rank, step in every]).mean())


def _put_back(node: SmallReplica, optimizer: dict[str, object]) -> None:
    """Parameters and optimizer as they were, and a reset."""
    node.model.load_state_dict(replica().state_dict())
    node.optimizer.load_state_dict(copy.deepcopy(optimizer))
    node.running.reset()
    node.trajectory, node.num_steps, node.payload_bytes = [], 0, 0
    node.running.resume()


def _judge(algorithm: AbstractAlgorithm, collective: str, trials: list[_Training], *, timed: bool) -> Iterator[str]:
    for rank, trial in enumerate(trials):
        yield from (f"rank {rank}: {text}" for text in trial.wrong)
    agreements = trials[0].agreements
    if any(trial.agreements != agreements for trial in trials):
        yield "agreement_step differs between ranks: some would wait for others for ever"
    if any(agreed is not None and agreed < step for step, agreed in enumerate(agreements, start=1)):
        yield "agreement_step lies before the step that it was asked from"
    if not timed:
        yield from _judge_bytes(algorithm, collective, trials)
        if any(not _same(*trial.again) for trial in trials):
            yield "reset did not forget everything: the same steps end otherwise"
        if any(not _same(*trial.resumed) for trial in trials):
            yield "what state_dict gave does not go on as the training that gave it"
    yield from _judge_promise(algorithm, trials)


def _judge_bytes(algorithm: AbstractAlgorithm, collective: str, trials: list[_Training]) -> Iterator[str]:
    """Whether each rank has sent what ``traffic`` says."""
    traffic = algorithm.traffic(SHAPES, len(trials), COLLECTIVES.load(collective)(), NoCompression)
    for rank, trial in enumerate(trials):
        sent, claimed = trial.trained.payload_bytes, STEPS * traffic.payload_bytes_per_rank[rank]
        if abs(sent - claimed) > 0.01 * claimed + 1e-6:
            yield f"rank {rank} sent {sent} bytes in {STEPS} steps, and traffic claims {claimed:.0f}"


def _judge_promise(algorithm: AbstractAlgorithm, trials: list[_Training]) -> Iterator[str]:
    """Whether replicas are equal when ``replicas_equal`` says so."""
    promise, agreements = algorithm.replicas_equal, trials[0].agreements
    for step in range(1, STEPS + 1):
        due = promise == "after every step" or (promise == "after a round" and agreements[step - 1] == step)
        states = [trial.trained.trajectory[step - 1] for trial in trials]
        if due and any(not torch.equal(state, states[0]) for state in states):
            yield f"replicas differ after step {step}, and replicas_equal says {promise!r}"
            return


def _same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
