"""Networks of real namespaces. Skipped, with the kernel's reason, where this user may make none."""

from __future__ import annotations

import functools

import pytest

from bwbench.base.errors import UnfitMachineError
from bwbench.network.link import UNSHAPED
from bwbench.network.network import open_network


@functools.cache
def _refusal() -> str:
    try:
        with open_network(UNSHAPED, 1):
            return ""
    except UnfitMachineError as error:
        return str(error)


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    if _refusal():
        pytest.skip(_refusal())
