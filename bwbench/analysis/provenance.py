"""Whether results come from like machines and one version of the program; a table that mixes them says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bwbench.records import CellFolder

_COMMIT_DIGITS = 10


Provenance = tuple[str, str, str]  # host, kernel, commit


def provenance_note(folders: Iterable[CellFolder]) -> str | None:
    """A sentence for under a picture where hosts, kernels or commits are mixed, else None."""
    return mixed_note(provenance_of(folder) for folder in folders)


def provenance_of(folder: CellFolder) -> Provenance:
    """Where and by which version a cell was made; each empty where it was not recorded."""
    environment = folder.environment or {}
    return host_of(environment), str(environment.get("kernel") or ""), commit_of(environment)


def mixed_note(provenances: Iterable[Provenance]) -> str | None:
    """The same sentence for cells whose provenance is known already."""
    distinct, parts = set(provenances), []
    for index, what in enumerate(("hosts", "kernels", "commits")):
        known = sorted({provenance[index] for provenance in distinct} - {""})
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
