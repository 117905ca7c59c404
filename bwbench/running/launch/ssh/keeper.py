"""The part of launcher ``ssh`` that runs on a host: keeps one torchrun, and ends it when nobody wants it any more.

``start`` reads a ``KeeperOrder`` from standard input and leaves a keeper behind. ``attach`` is the line between it and
the controller, one JSON object a line on the standard streams of an ssh session: beats come in, what is printed and
recorded goes out. A connection that breaks ends ``attach`` alone. Where no beat has come for a while the keeper ends
everything, and so it does when told.

Who knows the token of a run can end it. It comes on standard input and stands in the environment, which the user alone
can read, and never among the arguments, which ``ps`` shows to everybody.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from bwbench.base.die_with_parent import die_with_parent
from bwbench.base.messages import MessageReader
from bwbench.base.ownership import owned, owned_by_nobody
from bwbench.base.start_module import module_command, module_script
from bwbench.records import read_json, read_record, write_json_atomic, write_record
from bwbench.records.files import LEAST_FREE_BYTES
from bwbench.records.schema import JsonObject, Record
from bwbench.running.launch.ssh.host_shaping import HeldShaping, ShapingRequest

KEEPER = "bwbench.running.launch.ssh.keeper"
TOKEN = "BWBENCH_SSH_TOKEN"  # in the environment of everything that belongs to a run
STATE = Path.home() / ".cache" / "bwbench" / "ssh"  # folders of runs
HEARTBEAT_LIMIT_S = 30.0
FIRST_BEAT_S = 60.0  # for the first one more: a Python has to start for it, where others are starting
POLL_S = 0.2
TERM_LIMIT_S = 5.0  # from SIGTERM to SIGKILL
COMPANION_LIMIT_S = 15.0  # after torchrun has ended: for the companion to write the result
RESERVE_BYTES = 64 * 1024  # given up for the last word, on a disk that has filled meanwhile
OLD_S = 7 * 86400.0  # folders of runs that nobody has fetched
LOOK_S = 0.5  # at what is new, and at what the controller says
CHUNK_BYTES = 256 * 1024  # of a file, in one line to the controller


class KeeperOrder(Record):
    """What a host is told to run.

    Attributes:
        token: of this host's part of the run.
        cell: content of cell.json.
        torchrun: its arguments, up to the program that it starts.
        environment: variables that torchrun gets.
        shaping: for the host's shaper; None where nothing is shaped.
    """

    token: str
    cell: JsonObject
    torchrun: tuple[str, ...]
    environment: Mapping[str, str]
    shaping: ShapingRequest | None


class RunEnd(Record):
    """How torchrun has ended on a host: what exit.json holds.

    Attributes:
        why: it was ended, or failed, where that is known there.
    """

    returncode: int
    why: str | None


def start(order: KeeperOrder) -> None:
    """Make the folder of a run and leave its keeper behind."""
    STATE.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in STATE.glob("run-*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > OLD_S:
                shutil.rmtree(old, ignore_errors=True)
    folder = folder_of(order.token)
    work = folder / "cell"
    work.mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    write_json_atomic(work / "cell.json", order.cell)
    write_record(folder / "order.json", order)
    (folder / "reserve").write_bytes(bytes(RESERVE_BYTES))
    (folder / "beat").touch()
    beat(folder, FIRST_BEAT_S)
    command = [*module_command(KEEPER), "keep"]
    logs = {"PET_LOG_DIR": str(folder / "torchrun")}  # of torchrun, which would leave a folder below /tmp instead
    environment = {**owned_by_nobody(), **order.environment, **logs, TOKEN: order.token}
    with (folder / "output.log").open("ab") as log:
        kept = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    began_s = psutil.Process(kept.pid).create_time()
    write_json_atomic(folder / "keeper.json", {"pid": kept.pid, "began_s": began_s})


def folder_of(token: str) -> Path:
    """Of a run: everybody may read its name, as an argument of the workers, and nobody can tell the token by it.

    Raises ValueError where the token is none of ours.
    """
    if not re.fullmatch(r"[0-9a-f]{16,64}", token):
        raise ValueError("what was sent is no token of a run")
    return STATE / f"run-{hashlib.sha256(token.encode()).hexdigest()[:32]}"


def beat(folder: Path, for_s: float = 0.0) -> None:
    """Say that somebody still wants the run, or will for so long without another word.

    It is a file's time stamp, by the monotonic clock: that needs no room on a disk that is full.
    """
    until_ns = int((time.monotonic() + for_s) * 1e9)
    os.utime(folder / "beat", ns=(until_ns, until_ns))


def keep(folder: Path) -> None:
    """Run torchrun to its end, or to that of everybody's interest; then say how it ended."""
    order = read_record(KeeperOrder, folder / "order.json")
    assert order is not None, "whoever has started this has written it"
    signal.signal(signal.SIGTERM, lambda *_: (folder / "stop").touch())
    shaping = HeldShaping(order.shaping, hidden=TOKEN)
    returncode = 1
    try:
        why = shaping.begin(lambda: _unwanted(folder))
        if shaping.said is not None:
            write_json_atomic(folder / "cell" / "shaping.json", shaping.said)
        if why is None:
            returncode, why = _train(order, folder, shaping)
        _await_others(order.token)
        if returncode != 0 and why is None and (free_bytes := shutil.disk_usage(folder).free) < LEAST_FREE_BYTES:
            where = f"({free_bytes / 1e6:.1f} MB are free where {folder.parent} lies)"
            why = f"its disk is full {where}; make room there"
    except OSError as error:
        why = f"{error.filename or folder}: {error.strerror or error}"
    finally:
        problem = shaping.end()
    if _silent_s(folder) > HEARTBEAT_LIMIT_S:  # nobody will fetch what is here
        # Renamed first: whoever looks meanwhile finds all of it or nothing.
        gone = folder.rename(folder.with_name(f"{folder.name}-gone"))
        shutil.rmtree(gone, ignore_errors=True)
        return
    (folder / "reserve").unlink(missing_ok=True)
    write_record(folder / "exit.json", RunEnd(returncode=returncode, why=why or problem))


def _train(order: KeeperOrder, folder: Path, shaping: HeldShaping) -> tuple[int, str | None]:
    """How torchrun ended, and why, where it was ended from here."""
    why: str | None = None
    worker = [*module_script("bwbench.training.loop.worker"), str(folder / "cell" / "cell.json")]
    command = [*module_command("bwbench.training.loop.torchrun"), *order.torchrun, *worker]
    process = subprocess.Popen(
        command, env=owned(), stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_parent
    )
    while process.poll() is None:
        time.sleep(POLL_S)
        why = why or _unwanted(folder) or shaping.problem()
        if why is not None:
            _end(process, order.token)
    return process.returncode, why


def _unwanted(folder: Path) -> str | None:
    """Why the run is to end though it has not; None while it is wanted."""
    if (folder / "stop").exists():
        return "told to stop"
    if (silent_s := _silent_s(folder)) > HEARTBEAT_LIMIT_S:
        return f"nothing was heard of the controller for {silent_s:.0f} s"
    return None


def _silent_s(folder: Path) -> float:
    with contextlib.suppress(OSError):
        return time.monotonic() - (folder / "beat").stat().st_mtime_ns / 1e9
    return 0.0


def _end(process: subprocess.Popen[bytes], token: str) -> None:
    """End torchrun, which ends its workers; then, by force, whatever is left."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(TERM_LIMIT_S)
    if process.poll() is None:
        process.kill()
        process.wait()
    for other in others(token):
        if "bwbench.running.launch.companion" not in _command(other):
            with contextlib.suppress(psutil.Error):
                other.kill()


def _await_others(token: str) -> None:
    """Until the companions have written what they know; who takes too long is killed."""
    deadline_s = time.monotonic() + COMPANION_LIMIT_S
    while (left := list(others(token))) and time.monotonic() < deadline_s:
        for process in left:
            if "bwbench.training.loop.worker" in _command(process):  # torchrun was killed, and left it behind
                with contextlib.suppress(psutil.Error):
                    process.kill()
        time.sleep(POLL_S)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()


def others(token: str) -> Iterator[psutil.Process]:
    """Processes that belong to the run, this one left out."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(TOKEN) == token and KEEPER not in _command(process):
                yield process


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def attach() -> None:
    """Tell the controller what is new until the run has ended or the controller is gone.

    The first line that comes in is ``{"token": …, "offsets": {file: bytes that are there already}}``; each later one is
    a beat, and ``{"stop": true}`` ends the run. ``{"file", "offset", "data"}`` goes out for what has been added to a
    file, data in base64, and ``{"exit": …}`` last.
    """
    lines = MessageReader(sys.stdin.fileno())
    folder: Path | None = None
    offsets: dict[str, int] | None = None
    while not lines.has_ended:
        for said in lines.ready(LOOK_S):
            folder = folder or folder_of(str(said.get("token")))
            with contextlib.suppress(FileNotFoundError):  # ended there, as is said below
                beat(folder)
            if "offsets" in said:
                offsets = dict(said["offsets"])
            if said.get("stop"):
                (folder / "stop").touch()
        if folder is None or offsets is None:
            continue
        keeper, is_there = read_json(folder / "keeper.json"), False
        with contextlib.suppress(psutil.Error):
            is_there = isinstance(keeper, dict) and psutil.Process(keeper["pid"]).create_time() == keeper["began_s"]
        ended = read_record(RunEnd, folder / "exit.json")  # before the files: they are complete by then
        if ended is None and not is_there:
            why = "the keeper of its torchrun was killed"
            if not folder.is_dir():  # as the keeper leaves it where nobody seems to want the run
                why = f"ended there, because nothing was heard of the controller for {HEARTBEAT_LIMIT_S:.0f} s"
            ended = RunEnd(returncode=-signal.SIGKILL, why=why)
        if folder.is_dir():
            _send_new(folder, offsets)
        if ended is not None:
            _say({"exit": ended.to_json()})
            return


def _send_new(folder: Path, offsets: dict[str, int]) -> None:
    """What has been added since; a file that was replaced (JSON, written whole) is sent anew."""
    work = folder / "cell"
    for path in [folder / "output.log", *sorted(work.rglob("*"))]:
        if not path.is_file() or path.name.startswith(".") or path.name == "cell.json":
            continue
        name = path.relative_to(folder).as_posix()
        with path.open("rb") as file:
            if path.suffix == ".json":
                stamp = int(path.stat().st_mtime_ns)
                if offsets.get(name) == stamp:
                    continue
                offsets[name] = stamp
                _say({"file": name, "stamp": stamp, "data": base64.b64encode(file.read()).decode()})
                continue
            file.seek(offsets.get(name, 0))
            while chunk := file.read(CHUNK_BYTES):
                _say({"file": name, "offset": offsets.get(name, 0), "data": base64.b64encode(chunk).decode()})
                offsets[name] = offsets.get(name, 0) + len(chunk)


def _say(content: JsonObject) -> None:
    print(json.dumps(content), flush=True)


def main(arguments: list[str]) -> int:
    """One of ``start``, ``keep``, ``attach`` and ``remove``."""
    if arguments[0] == "start":
        start(KeeperOrder.model_validate_json(sys.stdin.readline()))
        _say({"ok": True})
    elif arguments[0] == "keep":
        keep(folder_of(os.environ[TOKEN]))
    elif arguments[0] == "attach":
        attach()
    else:
        shutil.rmtree(folder_of(json.loads(sys.stdin.readline())["token"]), ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
