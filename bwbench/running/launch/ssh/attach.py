"""The line between a keeper and the controller: one JSON object a line, on the standard streams of an ssh session."""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

from bwbench.base.messages import MessageReader
from bwbench.records import read_json
from bwbench.running.launch.ssh import keeper

LOOK_S = 0.5
CHUNK_BYTES = 256 * 1024


def attach(folder: Path) -> None:
    """Tell the controller what is new until the run has ended or the controller is gone.

    The first line that comes in is ``{"offsets": {file: bytes that are there already}}``; each later one is a beat, and
    ``{"stop": true}`` ends the run. ``{"file", "offset", "data"}`` goes out for what has been added to a file, data in
    base64, and ``{"exit": …}`` last.
    """
    lines = MessageReader(sys.stdin.fileno())
    offsets: dict[str, int] | None = None
    while not lines.has_ended:
        for said in lines.ready(LOOK_S):
            with contextlib.suppress(FileNotFoundError):  # ended there, as is said below
                keeper.beat(folder)
            if "offsets" in said:
                offsets = dict(said["offsets"])
            if said.get("stop"):
                (folder / "stop").touch()
        if offsets is None:
            continue
        is_kept = keeper.is_kept(folder)
        ended = read_json(folder / "exit.json")  # before the files: they are complete by then
        if not isinstance(ended, dict) and not is_kept:
            why = "the keeper of its torchrun was killed"
            if not folder.is_dir():  # as the keeper leaves it where nobody seems to want the run
                why = f"ended there, because nothing was heard of the controller for {keeper.HEARTBEAT_LIMIT_S:.0f} s"
            ended = {"returncode": -signal.SIGKILL, "why": why}
        if folder.is_dir():
            _send_new(folder, offsets)
        if isinstance(ended, dict):
            _say({"exit": ended})
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


def _say(content: dict[str, Any]) -> None:
    print(json.dumps(content), flush=True)
