"""Settings that hold for all tests, and which of them `make test` leaves to `make test-all`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

os.environ.setdefault("BWBENCH_SHARE_MACHINE", "1")  # no test waits for whatever else runs cells on this machine
# A shell's background job is born deaf to Ctrl-C, and so would be all that tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Folders whose tests start programs, namespaces, hosts or browsers: minutes each. The few that stand for the main job
# say so (`main_job`).
THOROUGH = frozenset({"browser", "e2e", "hosts", "netem", "netns", "package"})


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        if folder in THOROUGH and item.get_closest_marker("main_job") is None:
            item.add_marker(pytest.mark.thorough)
