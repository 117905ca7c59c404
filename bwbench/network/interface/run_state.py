"""What is applied to an interface, in a small file that only its owner can read and that ends with the boot.

With it the qdiscs of the interface before anything was touched: may they be replaced, and did they come back?
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from bwbench.base.errors import ConfigError, LinkError, UnfitMachineError
from bwbench.network.interface.steps import INGRESS_PARENT, ROOT, Names, show_handle

_DEFAULT_QDISC = Path("/proc/sys/net/core/default_qdisc")  # in the machine's first network namespace alone
_NO_QUEUE, _PER_QUEUE = "noqueue", "mq"  # what the kernel makes of interfaces without and with several queues
_FOUND_AGAIN = ("pfifo_fast", "fq_codel", "fq", "pfifo", "sfq", "codel", "cake")  # defaults that make a good leaf

LOCK_LIMIT_S = 10.0
_POLL_S = 0.05

Phase = Literal["applying", "held", "applied"]


@dataclass(frozen=True)
class QdiscSnapshot:
    """Kind, handle, parent and settings of every qdisc of one interface, sorted."""

    qdiscs: tuple[tuple[str, int, int, str], ...]

    @classmethod
    def of(cls, described: Sequence[Sequence[str | int]]) -> QdiscSnapshot:
        """From ``Kernel.described`` or from JSON."""
        return cls(tuple((str(kind), int(handle), int(parent), str(text)) for kind, handle, parent, text in described))

    def __str__(self) -> str:
        words = []
        for kind, handle, parent, _ in self.qdiscs:
            place = "root" if parent == ROOT else f"parent {show_handle(parent)}"
            words.append(kind if parent == INGRESS_PARENT else f"{kind} {show_handle(handle)} {place}")
        return ", ".join(words) or "none"

    @property
    def leaf(self) -> str | None:
        """What the kernel queues with here, to be used for the traffic that is left alone; None: nothing special."""
        kinds = {kind for kind, _, parent, _ in self.qdiscs if parent != INGRESS_PARENT} - {_PER_QUEUE}
        return next((kind for kind in _FOUND_AGAIN if kind in kinds), None)

    def refuse_unless_default(self, dev: str, *, both: bool) -> None:
        """Raise LinkError where the kernel would not make these qdiscs again by itself.

        Its own have the handle 0; nobody else can make such ones.
        """
        theirs = [qdisc for qdisc in self.qdiscs if qdisc[2] != INGRESS_PARENT and qdisc[1] != 0]
        if theirs or not any(parent == ROOT for _, _, parent, _ in self.qdiscs):
            raise LinkError(
                f"{dev} has qdiscs that somebody has set up ({self}), and the kernel would not make them again. "
                f"Nothing was changed; if nobody needs them, take them off: tc qdisc del dev {dev} root"
            )
        again = None
        with contextlib.suppress(OSError):
            again = _DEFAULT_QDISC.read_text().strip()
        made = {kind for kind, _, parent, _ in self.qdiscs if parent != INGRESS_PARENT} - {_NO_QUEUE, _PER_QUEUE}
        if again is not None and made - {again}:
            raise LinkError(
                f"{dev} has the default qdisc of an earlier time ({self}), and now the kernel would make {again} in "
                "its place. Nothing was changed; say for the time being what it is to make: "
                f"sysctl -w net.core.default_qdisc={min(made - {again})}"
            )
        if both and any(parent == INGRESS_PARENT for _, _, parent, _ in self.qdiscs):
            raise LinkError(
                f"{dev} has an ingress qdisc already ({self}): somebody else looks at what comes in. Nothing was "
                "changed; --only-up shapes what goes out alone"
            )


@dataclass(frozen=True)
class RunState:
    """One run on one interface.

    Attributes:
        run: see ``Names``.
        dev, index: the interface.
        phase: ``applying`` and ``held`` end with the process that applies or holds it, ``applied`` at the deadline.
        deadline_s: when it is taken back at the latest, on the clock of ``now_s``.
        both: whether what comes in is shaped as well; the ingress qdisc is ours then.
        before: the qdiscs as they were.
        summary: what was asked, for people.
    """

    run: str
    dev: str
    index: int
    phase: Phase
    deadline_s: float
    both: bool
    before: QdiscSnapshot
    summary: str

    @property
    def names(self) -> Names:
        """What it calls its things."""
        return Names(self.run)


class StateFolder:
    """Where the states of this user are. One process at a time works on them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls) -> StateFolder:
        """/run/bwbench for root, else below XDG_RUNTIME_DIR; raises UnfitMachineError where neither is ours alone."""
        reasons = []
        for path in _candidates():
            try:
                with contextlib.suppress(FileExistsError):
                    path.mkdir(mode=0o700)
                _check_owner(path, path.lstat(), stat.S_ISDIR)
                return cls(path)
            except OSError as error:
                reasons.append(f"{path}: {error.strerror}")
            except UnfitMachineError as error:
                reasons.append(str(error))
        raise UnfitMachineError(
            "nothing was applied: there is no folder to remember it in "
            f"({'; '.join(reasons) or 'XDG_RUNTIME_DIR names none'}); run the same command with sudo"
        )

    def file_of(self, dev: str) -> Path:
        """Where the state of ``dev`` in this network namespace is kept; raises ConfigError for what is no name."""
        if "/" in dev:
            raise ConfigError(f"--dev {dev!r}: there is no such interface")
        return self.path / f"{_prefix()}{dev}.json"

    def states(self) -> list[RunState]:
        """What is applied in this network namespace; raises UnfitMachineError where a file is not ours alone."""
        found = [read_state(path) for path in sorted(self.path.glob(f"{_prefix()}*.json"))]
        return [state for state in found if state is not None]

    @contextlib.contextmanager
    def locked(self, limit_s: float = LOCK_LIMIT_S) -> Iterator[None]:
        """Be alone; the lock dies with its holder. Raises UnfitMachineError where another takes too long."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            end_s = time.monotonic() + limit_s
            while True:
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= end_s:
                        message = f"another bwbench has been changing an interface for {limit_s:g} s; try again"
                        raise UnfitMachineError(message) from None
                    time.sleep(_POLL_S)
            yield
        finally:
            os.close(folder)


def read_state(path: Path) -> RunState | None:
    """The state in a file; None where there is none, or an old one. Raises UnfitMachineError where it is not ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnfitMachineError(f"{path}: {error.strerror}; this file should be ours alone, look at it") from error
    with open(descriptor, encoding="utf-8") as file:
        _check_owner(path, os.fstat(descriptor), stat.S_ISREG)
        try:
            content = json.load(file)
            if content.pop("boot") != _boot():  # the machine has been booted since
                return None
            return RunState(**{**content, "before": QdiscSnapshot.of(content["before"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnfitMachineError(f"{path}: not written by this version of bwbench ({error}); delete it") from error


def write_state(path: Path, state: RunState) -> None:
    """Replace the state in a file, at once; the folder is locked. A signal on the way leaves the old one alone."""
    temporary = _temporary(path)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump({**asdict(state), "before": state.before.qdiscs, "boot": _boot()}, file)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise UnfitMachineError(f"cannot write {path}: {error.strerror}; nothing was applied") from error
        raise


def forget_state(path: Path) -> None:
    """Delete the state in a file, and what a writer that was killed has left beside it; the folder is locked."""
    path.unlink(missing_ok=True)
    _temporary(path).unlink(missing_ok=True)


def now_s() -> float:
    """Seconds since the boot, those of sleep included: a lid that was closed does not lengthen a run."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _temporary(path: Path) -> Path:
    """One name for all processes: they write one at a time, and the next one overwrites what a killed one has left."""
    return path.with_suffix(".part")


def _prefix() -> str:
    return f"link-{os.stat('/proc/self/ns/net').st_ino}-"


def _candidates() -> Iterator[Path]:
    if os.geteuid() == 0:
        yield Path("/run/bwbench")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime, "bwbench")


def _check_owner(path: Path, found: os.stat_result, right_kind: Callable[[int], bool]) -> None:
    if not right_kind(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise UnfitMachineError(f"{path} should belong to user {os.geteuid()} alone (mode 0700 or 0600) and does not")


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
