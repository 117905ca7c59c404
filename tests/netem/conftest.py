"""These tests need a kernel with netem. Any user's may have it; ``tests/netem/run`` brings one along."""

from __future__ import annotations

import functools
import os

import pytest

from bwbench.network.netem.netem_check import netem_available

_available = functools.cache(netem_available)


@pytest.fixture(autouse=True, scope="session")
def _netem() -> None:
    if _available():
        return
    if os.environ.get("BWBENCH_REQUIRE_NETEM"):
        pytest.exit("this kernel has no netem, though it is here for nothing else", returncode=1)
    pytest.skip("this kernel has no netem, or gives us no namespace to use it in; make test-netem brings one that does")
