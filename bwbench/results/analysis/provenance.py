"""Whether results come from like machines and one version of the program; a table that mixes them says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
        return "+".join(sorted(map(_name_of, hosts)))
    return str(environment.get("hostname") or environment.get("host") or "")


def _name_of(host: Any) -> str:
    """As recorded for one of several hosts: its name, else its address, or all that there is."""
    if not isinstance(host, Mapping):
        return str(host)
    return str(host.get("name") or host.get("host") or host.get("address") or host)


def unlike_hosts_note(folders: Iterable[CellFolder]) -> str | None:
    """A sentence for under a picture where the ranks of a cell ran on hosts that are not alike, else None."""
    found: dict[str, set[str]] = {}
    for folder in folders:
        hosts = (folder.environment or {}).get("hosts")
        for host in hosts if isinstance(hosts, list) else ():
            for what, value in _traits(host) if isinstance(host, Mapping) else ():
                found.setdefault(what, set()).add(value)
    parts = [f"{what} ({', '.join(sorted(values))})" for what, values in found.items() if len(values) > 1]
    return f"Ranks ran on hosts that differ in {'; '.join(parts)}." if parts else None


def _traits(host: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What makes one host faster than another, as far as recorded."""
    tcp = host.get("tcp")
    congestion_control = tcp.get("tcp_congestion_control") if isinstance(tcp, Mapping) else None
    for what, value in (
        ("processor", host.get("cpu")),
        ("number of cores", host.get("cores")),
        ("kernel", host.get("kernel")),
        ("congestion control", congestion_control),
    ):
        if value is not None:
            yield what, str(value)


def commit_of(environment: Mapping[str, Any]) -> str:
    """Commit of the program, ``+`` appended where the working tree had changes; empty where it was not recorded."""
    git = environment.get("git")
    source: Mapping[str, Any] = git if isinstance(git, Mapping) else environment
    commit = str(source.get("commit") or "")[:_COMMIT_DIGITS]
    return f"{commit}+" if commit and source.get("dirty") else commit
