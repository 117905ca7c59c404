"""A Ray cluster as an executor. Ray is given a node for every task, so that it never puts two cells on one.

``RayCluster`` is what ``--on`` names; ``RayExecutor`` the cluster that this process is connected to. Ray is imported
when it is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import importlib.util
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bwbench import __version__
from bwbench.base.errors import ConfigError, UnfitMachineError
from bwbench.base.start_module import WITHOUT_CALLERS_FOLDER
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.records.files import full_disk_said
from bwbench.records.schema import JsonObject
from bwbench.running.cluster.remote_machine import MachineAnswer, Work, carry_out, representatives
from bwbench.running.executor import Lost, Machine, Report
from bwbench.running.run_cell import CellObserver
from bwbench.running.sweep import SweepPlan

CONNECT_LIMIT_S = 45.0  # from the start of Python to an answer of a cluster that is busy
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
Letter = tuple[int, str, Any, Any]  # key of a cell, then what ``remote_machine.Post`` is called with
_MARKER = ".seen-from-"
_ADDRESS = re.compile(r"ray(://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5}))?")
_ENDING = "bwbench-connected:"

# Ray's own limits add up to more than two minutes, some inside calls that no signal interrupts, and some of its
# failures end the process.
_TRY = f"""
{WITHOUT_CALLERS_FOLDER}
import json
import ray
try:
    ray.init(address=json.loads(sys.argv[1]), log_to_driver=False, logging_level="error")
    ray.shutdown()
    print("{_ENDING}")
except BaseException as error:
    print("{_ENDING}" + json.dumps(f"{{type(error).__name__}}: {{error}}"))
"""


@dataclass(frozen=True)
class RayCluster:
    """Where cells run if not on this machine.

    Attributes:
        address: of the cluster, as Ray takes it.
        cells_per_machine: at the same time.
    """

    address: str
    cells_per_machine: int = 1

    @contextlib.contextmanager
    def executor(self, sweep: SweepPlan) -> Iterator[RayExecutor]:
        """Connect, to run what a sweep has to do; leaving ends the cells that still run, and disconnects.

        Raises UnfitMachineError where no cluster answers within a limit, or it runs another version of Ray or Python.
        """
        cells = representatives(item.cell for item in sweep.todo)
        with _marked(sweep.results) as (marker, token), _connected(self.address) as ray:
            executor = RayExecutor(ray, (marker, token, cells), self.cells_per_machine)
            try:
                yield executor
            finally:
                executor.cancel()


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    """The module ``ray``, connected. Signals go on doing what they did: Ray would take them over."""
    check_answers(address)
    ray: Any = importlib.import_module("ray")
    ended_by = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # Ray talks there; we say it ourselves
        with _standing_in("/"):  # Ray puts the working directory first on sys.path of everything that runs our tasks
            ray.init(address=address, log_to_driver=False, logging_level="error")
        try:
            for number, handler in ended_by.items():
                signal.signal(number, handler)
            yield ray
        finally:
            ray.shutdown()


@contextlib.contextmanager
def _standing_in(folder: str) -> Iterator[None]:
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(before)
        os.close(before)


class RayExecutor:
    """The cluster that this process is connected to.

    Args:
        ray: the module.
        about: what machines are asked about; see ``describe_here``.
        cells_per_machine: at the same time.
    """

    def __init__(self, ray: Any, about: tuple[str, str, Sequence[JsonObject]], cells_per_machine: int) -> None:
        self.cells_per_machine = cells_per_machine
        self._ray, self._about = ray, about
        self._ask = ray.remote(_question())
        self._carry_out = ray.remote(_carry_out)
        self._postbox = ray.remote(_postbox()).options(num_cpus=0, resources={_HEAD: 0.001}).remote()
        self._alive: dict[str, tuple[str, float]] = {}  # name for messages and cores of each node
        self._looked_s = float("-inf")
        self._asked: dict[Any, tuple[str, float]] = {}  # answer to come: node, when asked
        self._machines: dict[str, Machine] = {}
        self._rest_until_s: dict[str, float] = {}
        self._running: dict[Any, tuple[int, str]] = {}  # end to come: key, node
        self._watched: dict[int, tuple[PlannedCell, CellObserver]] = {}  # by key
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

    def takes(self, item: PlannedCell, running: Sequence[PlannedCell]) -> bool:
        """Anything beside anything: machines have their number of cells."""
        return True

    def start(self, machine: Machine, item: PlannedCell, wall_limit_s: float, observer: CellObserver) -> int:
        """A task on this node and no other, without Ray's own retries: a lost cell may fit better elsewhere."""
        self._keys += 1
        cpus = machine.cpus / self.cells_per_machine
        work = Work.of(item, machine, wall_limit_s, alone=self.cells_per_machine == 1)
        task = self._carry_out.options(**_on(machine.node, int(cpus) if cpus >= 1 else round(cpus, 3)))
        self._running[task.remote(work, self._postbox, self._keys)] = self._keys, machine.node
        self._watched[self._keys] = item, observer
        return self._keys

    def reports(self, limit_s: float) -> list[Report]:
        """Observers are told first, so that no cell tells anything after its end.

        Raises UnfitMachineError where the cluster itself is gone.
        """
        try:
            letters, found = self._look(limit_s)
        except Exception as error:  # whatever Ray raises without its head
            text = "the Ray cluster does not answer any more; once it is there again, run the same command again"
            raise UnfitMachineError(f"{text}. Ray says: {_first_line(error)}") from error
        for key, kind, first, second in letters:
            if key in self._watched:  # else of a cell that was given up
                item, observer = self._watched[key]
                if kind == "phase":
                    observer.cell_phase(item.cell, first)
                else:
                    observer.cell_event(item.cell, first, second)
        for report in found:
            del self._watched[report.key]
        return found

    def _look(self, limit_s: float) -> tuple[list[Letter], list[Report]]:
        self._look_at_nodes()
        pending = [*self._running, *self._asked]
        self._ray.wait([self._next_letters(), *pending], timeout=limit_s)
        ready, _ = self._ray.wait(pending, num_returns=len(pending), timeout=0) if pending else ([], [])
        letters = self._read_letters(wait=bool(ready))
        found: list[Report] = []
        for reference in ready:
            if reference in self._asked:
                self._read_answer(reference)
            else:
                found.append(self._read_end(reference))
        # Ray may go on waiting for a task whose node is gone; a node once gone never comes back under its id.
        lost = [reference for reference, (_, node) in self._running.items() if node not in self._alive]
        for reference in lost:
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=True)
        return letters, [*found, *(Report(self._running.pop(reference)[0], Lost(GONE)) for reference in lost)]

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

    def _look_at_nodes(self) -> None:
        """Notice nodes that have come and gone; ask the new ones what they are."""
        now = time.monotonic()
        if now - self._looked_s < LOOK_AT_NODES_S:
            return
        self._looked_s = now
        nodes = {
            node["NodeID"]: (f"{node.get('NodeManagerHostname', '?')} ({node.get('NodeManagerAddress', '?')})", cpus)
            for node in self._ray.nodes()
            if node["Alive"] and (cpus := float(node["Resources"].get("CPU", 0))) > 0
        }
        for node in nodes.keys() - self._alive.keys():
            answer = self._ask.options(**_on(node, 0)).remote(__version__, *self._about)
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

    def _note(self, node: str, answer: MachineAnswer) -> None:
        if node not in self._alive:
            return
        name, cpus = self._alive[node]
        host, shared = str(answer.get("host", node)), bool(answer.get("shared"))
        self._machines[node] = Machine(node, host, name, cpus, shared, answer.get("problem"))

    def _next_letters(self) -> Any:
        if self._letters is None:
            self._letters = self._postbox.take.remote(LETTERS_S)
        return self._letters

    def _read_letters(self, *, wait: bool) -> list[Letter]:
        """What machines have told since; ``wait`` for what is under way, because a cell has ended."""
        reference = self._next_letters()
        if not wait and not self._ray.wait([reference], timeout=0)[0]:
            return []
        self._letters = None
        return list(self._ray.get(reference, timeout=LETTERS_LIMIT_S))

    def _read_end(self, reference: Any) -> Report:
        key, node = self._running.pop(reference)
        try:
            return Report(key, self._ray.get(reference, timeout=RESULT_LIMIT_S))
        except Exception as error:  # a killed process, a lost node, too little memory: all of them Ray's words
            self._rest_until_s[node] = time.monotonic() + REST_S
            return Report(key, Lost(GONE if type(error).__name__ in _GONE else _first_line(error)))


def _on(node: str, cpus: float) -> Any:
    """Options of a task that runs on this node, once."""
    strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
    affinity = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return {"num_cpus": cpus, "max_retries": 0, "scheduling_strategy": affinity}


def _carry_out(work: Work, postbox: Any, key: int) -> Any:
    """The task: runs on a machine whose bwbench is ours."""
    return carry_out(work, lambda kind, first, second: postbox.put.remote((key, kind, first, second)))


def _question() -> Any:
    """The task that asks a machine what it is. Ray carries its text along, since bwbench may be missing there."""

    def about(version: str, marker: str, token: str, cells: list[JsonObject]) -> MachineAnswer:
        import sys  # here, as all that the text needs

        try:
            import bwbench  # which may be missing there
        except ImportError as error:
            return {"problem": f"bwbench cannot be imported by {sys.executable} ({error}); install version {version}"}
        if bwbench.__version__ != version:
            return {"problem": f"has bwbench {bwbench.__version__}, and here is {version}; install the same version"}
        from bwbench.running.cluster.remote_machine import describe_here  # of that version

        return describe_here(marker, token, cells)

    return about


def _postbox() -> Any:
    """The actor that keeps what machines tell until it is asked for; it lives on the head, with the cluster itself."""
    import asyncio  # with its text, as above

    class Postbox:
        def __init__(self) -> None:
            self._letters: list[Any] = []
            self._come = asyncio.Event()

        async def put(self, letter: Any) -> None:
            self._letters.append(letter)
            self._come.set()

        async def take(self, limit_s: float) -> list[Any]:
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


def ray_address(on: str) -> str:
    """What ``ray.init`` takes for the text after ``--on``: ``ray`` (the cluster of this machine, or RAY_ADDRESS) or ``ray://HOST:PORT``.

    Raises ConfigError for any other text, and where Ray is not installed.
    """
    match = _ADDRESS.fullmatch(on)
    if match is None or not 0 < int(match["port"] or 1) < 65536:
        raise ConfigError(f"--on {on!r}: write ray, or ray://HOST:PORT with the port of Ray's client server (10001)")
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("--on ray needs Ray, which is not installed here; get it with: pip install 'bwbench[ray]'")
    if match["host"] is not None:
        return on
    return os.environ.get("RAY_ADDRESS") or "auto"


def check_answers(address: str, limit_s: float = CONNECT_LIMIT_S) -> None:
    """Connect and leave again. Raises UnfitMachineError with what Ray says, or where it says nothing in time."""
    where = "no Ray cluster of this machine" if address == "auto" else f"no Ray cluster at {address}"
    start = "; start one with `ray start --head`, see docs/cluster.md" if address == "auto" else ""
    command = [sys.executable, "-c", _TRY, json.dumps(address)]
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        raise UnfitMachineError(f"{where} has answered within {limit_s:.0f} s{start}") from None
    lines = [line for line in result.stdout.decode(errors="replace").splitlines() if line.startswith(_ENDING)]
    if not lines:
        raise UnfitMachineError(f"{where} can be used: Ray ended with exit status {result.returncode}{start}")
    if said := lines[-1].removeprefix(_ENDING):
        text = " ".join(str(json.loads(said)).split())
        hint = "" if "ersion" in text else start
        raise UnfitMachineError(f"{where} can be used{hint}. Ray says: {text}")


@contextlib.contextmanager
def _marked(results: Path) -> Iterator[tuple[str, str]]:
    """A file in the results folder, and what is in it: a machine that can read it sees this folder.

    Markers of sweeps that were killed are removed; the lock tells them from those in use.
    """
    token = secrets.token_hex(16)
    marker = results.absolute() / f"{_MARKER}{token}"
    with full_disk_said(results):
        results.mkdir(parents=True, exist_ok=True)
        for old in results.glob(f"{_MARKER}*"):
            with contextlib.suppress(OSError), old.open(encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                old.unlink()
        with marker.open("x", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(token)
            file.flush()
            try:
                yield str(marker), token
            finally:
                marker.unlink(missing_ok=True)
