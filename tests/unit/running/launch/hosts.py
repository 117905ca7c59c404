"""What a host says of itself, as far as a test cares."""

from __future__ import annotations

from typing import Any

from bwbench.records.schema import Environment
from bwbench.running.launch.ssh.host_facts import PreflightFacts


def facts(**said: Any) -> PreflightFacts:
    """Of a host that lacks nothing."""
    fit = {"time_unix_s": 0.0, "free_bytes": 10**10, "memory_bytes": 10**10, "port": 29400}
    return PreflightFacts.model_validate({"environment": Environment(bwbench="0.2"), **fit, **said})
