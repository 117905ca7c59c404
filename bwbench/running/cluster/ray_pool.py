"""A Ray cluster as a pool of machines. Ray is given a node for every task, so that it never puts two cells on one."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bwbench import __version__
from bwbench.base.errors import UnfitMachineError
from bwbench.running.cluster.machines import Machine
from bwbench.running.cluster.pool import Ended, Lost, Report, Told
from bwbench.running.cluster.ray_address import check_answers
from bwbench.running.cluster.work import Work, carry_out

LOOK_AT_NODES_S = 1.0
ASK_LIMIT_S = 90.0  # a machine that has to start Python and import bwbench from a slow disk
REST_S = 30.0  # that a node gets no work after it lost some: its death shows in Ray's list only later
CANCEL_LIMIT_S = 30.0  # what a cell needs to see an interruption: some looks at its link take ten seconds
LETTERS_S = 0.5  # how long the postbox keeps a question for letters when there are none
RESULT_LIMIT_S = 300.0  # a cell's records over a slow link; its node may be gone since it has ended
LETTERS_LIMIT_S = 60.0  # how long the postbox may take to answer: the head of the cluster is busy, or gone
GONE = "its machine is gone"
_GONE = ("TaskUnschedulableError", "NodeDiedError", "ObjectLostError", "OwnerDiedError")
_HEAD = "node:__internal_head__"


@contextlib.contextmanager
def ray_pool(address: str, marker: str, token: str, cells: Sequence[dict[str, Any]]) -> Iterator[RayPool]:
    """Connect to a Ray cluster; leaving cancels what still runs, and disconnects.

    Args:
        address: as ``ray_address`` gives it.
        marker, token, cells: see ``machines.describe_here``.

    Raises UnfitMachineError where the cluster does not answer within a limit, or runs another version of Ray or Python.
    """
    check_answers(address)
    ray: Any = importlib.import_module("ray")
    ended_by = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # Ray talks there; we say it ourselves
        ray.init(address=address, log_to_driver=False, logging_level="error")
        for number, handler in ended_by.items():
            signal.signal(number, handler)
        pool = RayPool(ray, marker, token, cells)
        try:
            yield pool
        finally:
            pool.cancel()
            ray.shutdown()


class RayPool:
    """The cluster that this process is connected to."""

    def __init__(self, ray: Any, marker: str, token: str, cells: Sequence[dict[str, Any]]) -> None:
        self._ray = ray
        self._about = (marker, token, list(cells))
        self._ask = ray.remote(_question())
        self._carry_out = ray.remote(_carry_out)
        self._postbox = ray.remote(_postbox()).options(num_cpus=0, resources={_HEAD: 0.001}).remote()
        self._alive: dict[str, dict[str, Any]] = {}
        self._looked_s = float("-inf")
        self._asked: dict[Any, tuple[str, float]] = {}  # answer to come: node, when asked
        self._machines: dict[str, Machine] = {}
        self._rest_until_s: dict[str, float] = {}
        self._running: dict[Any, tuple[int, str]] = {}  # outcome to come: key, node
        self._keys = 0
        self._letters: Any = None

    def machines(self) -> Sequence[Machine]:
        """All alive nodes with cores that have answered, and have not just lost their work."""
        now = time.monotonic()
        resting = {node for node, until_s in self._rest_until_s.items() if now < until_s}
        return [machine for node, machine in self._machines.items() if node in self._alive.keys() - resting]

    @property
    def is_asking(self) -> bool:
        """Whether nodes are there that have not answered yet."""
        return bool(self._asked)

    def start(self, machine: Machine, work: Work, share: int) -> int:
        """A task on this node and no other, without Ray's own retries: a lost cell may fit better elsewhere."""
        self._keys += 1
        cpus = machine.cpus / share
        options = self._on(machine.node, int(cpus) if cpus >= 1 else round(cpus, 3))
        outcome = self._carry_out.options(**options).remote(work, self._postbox, self._keys)
        self._running[outcome] = self._keys, machine.node
        return self._keys

    def reports(self, limit_s: float) -> list[Report]:
        """Messages first, so that no cell tells anything after its end.

        Raises UnfitMachineError where the cluster itself is gone.
        """
        try:
            return self._look(limit_s)
        except Exception as error:  # whatever Ray raises without its head
            text = "the Ray cluster does not answer any more; once it is there again, run the same command again"
            raise UnfitMachineError(f"{text}. Ray says: {_first_line(error)}") from error

    def _look(self, limit_s: float) -> list[Report]:
        self._look_at_nodes()
        pending = [*self._running, *self._asked]
        self._ray.wait([self._next_letters(), *pending], timeout=limit_s)
        ready, _ = self._ray.wait(pending, num_returns=len(pending), timeout=0) if pending else ([], [])
        found: list[Report] = [*self._read_letters(wait=bool(ready))]
        for reference in ready:
            if reference in self._asked:
                self._read_answer(reference)
            else:
                found.append(self._read_outcome(reference))
        return [*found, *self._read_losses()]

    def cancel(self) -> None:
        """End all cells that run as Ctrl-C does, and by force after a limit."""
        running = list(self._running)
        with contextlib.suppress(Exception):  # the cluster may be gone, and everything with it
            for reference in [*running, *self._asked]:
                self._ray.cancel(reference)
            _, left = self._ray.wait(running, num_returns=len(running), timeout=CANCEL_LIMIT_S) if running else ([], [])
            for reference in left:
                self._ray.cancel(reference, force=True)
        with contextlib.suppress(Exception):
            self._ray.kill(self._postbox)
        self._running.clear()

    def _on(self, node: str, cpus: float) -> dict[str, Any]:
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        affinity = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        return {"num_cpus": cpus, "max_retries": 0, "scheduling_strategy": affinity}

    def _look_at_nodes(self) -> None:
        """Notice nodes that have come and gone; ask the new ones what they are."""
        now = time.monotonic()
        if now - self._looked_s < LOOK_AT_NODES_S:
            return
        self._looked_s = now
        nodes = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        nodes = {node: about for node, about in nodes.items() if about["Resources"].get("CPU", 0) > 0}
        for node in nodes.keys() - self._alive.keys():
            answer = self._ask.options(**self._on(node, 0)).remote(__version__, *self._about)
            self._asked[answer] = node, now
        self._alive = nodes
        for reference, (node, asked_s) in list(self._asked.items()):
            if node not in nodes or now - asked_s > ASK_LIMIT_S:
                del self._asked[reference]
                self._note(node, {"problem": f"has not answered within {ASK_LIMIT_S:.0f} s"})

    def _read_answer(self, reference: Any) -> None:
        node, _ = self._asked.pop(reference)
        try:
            answer = self._ray.get(reference, timeout=ASK_LIMIT_S)
        except Exception as error:  # whatever Ray raises for whatever went wrong there
            answer = {"problem": f"cannot be asked what it is: {_first_line(error)}"}
        self._note(node, answer)

    def _note(self, node: str, answer: dict[str, Any]) -> None:
        about = self._alive.get(node)
        if about is None:
            return
        name = f"{about.get('NodeManagerHostname', '?')} ({about.get('NodeManagerAddress', '?')})"
        cpus, host = float(about["Resources"]["CPU"]), str(answer.get("host", node))
        self._machines[node] = Machine(node, host, name, cpus, bool(answer.get("shared")), answer.get("problem"))

    def _next_letters(self) -> Any:
        if self._letters is None:
            self._letters = self._postbox.take.remote(LETTERS_S)
        return self._letters

    def _read_letters(self, wait: bool) -> list[Told]:
        """What machines have told since; ``wait`` for what is under way, because a cell has ended."""
        reference = self._next_letters()
        if not wait and not self._ray.wait([reference], timeout=0)[0]:
            return []
        self._letters = None
        return [Told(*letter) for letter in self._ray.get(reference, timeout=LETTERS_LIMIT_S)]

    def _read_outcome(self, reference: Any) -> Report:
        key, node = self._running.pop(reference)
        try:
            return Ended(key, self._ray.get(reference, timeout=RESULT_LIMIT_S))
        except Exception as error:  # a killed process, a lost node, too little memory: all of them Ray's words
            self._rest_until_s[node] = time.monotonic() + REST_S
            return Lost(key, GONE if type(error).__name__ in _GONE else _first_line(error))

    def _read_losses(self) -> list[Lost]:
        """Ray may go on waiting for a task whose node is gone; a node once gone never comes back under its id."""
        lost = [reference for reference, (_, node) in self._running.items() if node not in self._alive]
        for reference in lost:
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=True)
        return [Lost(self._running.pop(reference)[0], GONE) for reference in lost]


def _carry_out(work: Work, postbox: Any, key: int) -> Any:
    """The task: runs on a machine whose bwbench is ours."""

    def post(kind: str, first: Any, second: Any) -> None:
        postbox.put.remote((key, kind, first, second))

    return carry_out(work, post)


def _question() -> Any:
    """The task that asks a machine what it is. Ray carries its text along, since bwbench may be missing there."""

    def about(version: str, marker: str, token: str, cells: list[dict[str, Any]]) -> dict[str, Any]:
        import sys

        try:
            import bwbench
        except ImportError as error:
            return {"problem": f"bwbench cannot be imported by {sys.executable} ({error}); install version {version}"}
        if bwbench.__version__ != version:
            return {"problem": f"has bwbench {bwbench.__version__}, and here is {version}; install the same version"}
        from bwbench.running.cluster.machines import describe_here

        return describe_here(marker, token, cells)

    return about


def _postbox() -> Any:
    """The actor that keeps what machines tell until it is asked for; it lives on the head, with the cluster itself."""

    class Postbox:
        def __init__(self) -> None:
            import asyncio

            self._letters: list[Any] = []
            self._come = asyncio.Event()

        async def put(self, letter: Any) -> None:
            self._letters.append(letter)
            self._come.set()

        async def take(self, limit_s: float) -> list[Any]:
            import asyncio

            try:
                await asyncio.wait_for(self._come.wait(), limit_s)
            except asyncio.TimeoutError:
                return []
            taken, self._letters = self._letters, []
            self._come.clear()
            return taken

    return Postbox


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"
