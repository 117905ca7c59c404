"""The keeper's hold on its host's shaper: begun before torchrun, watched beside it, ended after it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from bwbench.base.messages import MessageReader, encode

SHAPER = "bwbench.running.launch.ssh.shaper"
BEGIN_LIMIT_S = 90.0  # it gives up by itself after 60 s
END_LIMIT_S = 30.0
POLL_S = 0.2


class HeldShaping:
    """A shaper process, or nothing where the cell shapes nothing.

    The shaper takes everything back when its standard input ends: with ``end``, or with this process.

    Args:
        request: as ``request.Request`` has it; None shapes nothing.
        hidden: variable that the shaper is not to have: whoever has it is ended with the run.

    Attributes:
        said: what was applied, in the shaper's words; None before that.
    """

    def __init__(self, request: Mapping[str, Any] | None, hidden: str) -> None:
        self._request = request
        self._environment = {name: value for name, value in os.environ.items() if name != hidden}
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: list[dict[str, Any]] = []
        self.said: dict[str, Any] | None = None

    def begin(self, unwanted: Callable[[], str | None]) -> str | None:
        """Shape; returns why that failed, or why nobody wants it any more. Not longer than ``BEGIN_LIMIT_S``."""
        if self._request is None:
            return None
        self._process = subprocess.Popen(
            [sys.executable, "-m", SHAPER, "hold"],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._reader = MessageReader(self._process.stdout.fileno())
        with contextlib.suppress(OSError):  # it has ended, and its answer says why
            self._process.stdin.write(encode(self._request))
            self._process.stdin.flush()
        end_s = time.monotonic() + BEGIN_LIMIT_S
        while time.monotonic() < end_s:
            if (why := unwanted()) is not None:
                return why
            self._answers += self._reader.all_ready(POLL_S)
            if self._answers:
                if (problem := self._answers[0].get("problem")) is not None:
                    return f"its interface was not shaped: {problem}"
                self.said = self._answers[0]
                return None
            if self._process.poll() is not None:
                return f"its interface was not shaped: the shaper ended with status {self._process.returncode}"
        return f"its interface was not shaped within {BEGIN_LIMIT_S:.0f} s"

    def problem(self) -> str | None:
        """Why the interface is no longer shaped; None while it is, or need not be."""
        if self._process is None or self._process.poll() is None:
            return None
        self._answers += self._reader.all_ready()
        told = [answer["problem"] for answer in self._answers if answer.get("problem")]
        return f"its interface is no longer shaped: {told[0] if told else 'the shaper was ended'}"

    def end(self) -> str | None:
        """Have everything taken back; returns what has not been, None where all has. A second time does nothing."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        with process.stdout:
            try:
                process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()  # what it has armed takes it back then
                process.wait()
                return "its interface was not seen to be as before; 'bwbench link clear' there looks"
            self._answers += self._reader.all_ready()
        restored = [answer for answer in self._answers if "restored" in answer]
        if restored and not restored[0]["restored"]:
            return f"its interface is not as before: {restored[0]['now']} instead of {restored[0]['before']}"
        return None
