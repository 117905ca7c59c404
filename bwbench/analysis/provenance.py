"""Whether results come from like machines and one version of the program; a table that mixes them says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bwbench.records import CellFolder

_COMMIT_DIGITS = 10


def provenance_note(folders: Iterable[CellFolder]) -> str | None:
    """A sentence for under a picture where hosts, kernels or commits are mixed, else None."""
    environments = [environment for folder in folders if (environment := folder.environment)]
    parts = []
    for what, values in (
        ("hosts", {host_of(environment) for environment in environments}),
        ("kernels", {str(environment.get("kernel") or "") for environment in environments}),
        ("commits", {commit_of(environment) for environment in environments}),
    ):
        known = sorted(value for value in values if value)
        if len(known) > 1:
            parts.append(f"{len(known)} {what} ({', '.join(known)})")
    return f"Mixed: {'; '.join(parts)}." if parts else None


def host_of(environment: Mapping[str, Any]) -> str:
    """The machine or machines that a cell ran on; empty where it was not recorded."""
    hosts = environment.get("hosts")
    if isinstance(hosts, list):
        return "+".join(
            sorted(str(host.get("name", host)) if isinstance(host, Mapping) else str(host) for host in hosts)
        )
    return str(environment.get("hostname") or environment.get("host") or "")


def commit_of(environment: Mapping[str, Any]) -> str:
    """Commit of the program, ``+`` appended where the working tree had changes; empty where it was not recorded."""
    git = environment.get("git")
    source: Mapping[str, Any] = git if isinstance(git, Mapping) else environment
    commit = str(source.get("commit") or "")[:_COMMIT_DIGITS]
    return f"{commit}+" if commit and source.get("dirty") else commit
