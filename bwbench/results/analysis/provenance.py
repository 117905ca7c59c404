"""Whether results come from like machines and one version of the program; a table that mixes them says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bwbench.records import CellFolder
from bwbench.records.schema import Environment, LinkRecord

_COMMIT_DIGITS = 10


Provenance = tuple[str, str, str]  # host, kernel, commit


def provenance_note(folders: Iterable[CellFolder]) -> str | None:
    """A sentence for under a picture where hosts, kernels or commits are mixed, else None."""
    return mixed_note(provenance_of(folder) for folder in folders)


def provenance_of(folder: CellFolder) -> Provenance:
    """Where and by which version a cell was made; each empty where it was not recorded."""
    environment = folder.environment
    kernel = environment.kernel if environment is not None else None
    return host_of(environment), kernel or "", commit_of(environment)


def mixed_note(provenances: Iterable[Provenance]) -> str | None:
    """The same sentence for cells whose provenance is known already."""
    distinct, parts = set(provenances), []
    for index, what in enumerate(("hosts", "kernels", "commits")):
        known = sorted({provenance[index] for provenance in distinct} - {""})
        if len(known) > 1:
            parts.append(f"{len(known)} {what} ({', '.join(known)})")
    return f"Mixed: {'; '.join(parts)}." if parts else None


def host_of(environment: Environment | None) -> str:
    """The machine or machines that a cell ran on; empty where it was not recorded."""
    if environment is None:
        return ""
    if environment.hosts is not None:
        return "+".join(sorted(host.name or host.host or host.address or "?" for host in environment.hosts))
    return environment.host or ""


def unlike_hosts_note(folders: Iterable[CellFolder]) -> str | None:
    """A sentence for under a picture where the ranks of a cell ran on hosts that are not alike, else None."""
    found: dict[str, set[str]] = {}
    for folder in folders:
        hosts = folder.environment.hosts if folder.environment is not None else None
        for host in hosts or ():
            for what, value in _traits(host):
                found.setdefault(what, set()).add(value)
    parts = [f"{what} ({', '.join(sorted(values))})" for what, values in found.items() if len(values) > 1]
    return f"Ranks ran on hosts that differ in {'; '.join(parts)}." if parts else None


def _traits(host: Environment) -> Iterator[tuple[str, str]]:
    """What makes one host faster than another, as far as recorded."""
    for what, value in (
        ("processor", host.cpu),
        ("number of cores", host.cores),
        ("kernel", host.kernel),
        ("congestion control", host.tcp.get("tcp_congestion_control")),
    ):
        if value is not None:
            yield what, str(value)


def commit_of(environment: Environment | None) -> str:
    """Commit of the program, ``+`` appended where the working tree had changes; empty where it was not recorded."""
    git = environment.git if environment is not None else None
    commit = (git.commit or "")[:_COMMIT_DIGITS] if git is not None else ""
    return f"{commit}+" if commit and git is not None and git.dirty else commit


@dataclass(frozen=True)
class Machines:
    """Each distinct value once, sorted; empty where nothing was recorded."""

    hosts: tuple[str, ...]
    processors: tuple[str, ...]
    cores: tuple[int, ...]
    kernels: tuple[str, ...]
    torch: tuple[str, ...]
    commits: tuple[str, ...]
    backends: tuple[str, ...]
    congestion_control: tuple[str, ...]


def machines_of(folders: Iterable[CellFolder]) -> Machines:
    """What environment.json and link.json say; of composed cells, those of the timing run."""
    cells = list(folders)
    environments = [folder.environment or Environment() for folder in cells]
    links = [folder.link or LinkRecord() for folder in cells]
    applied = [link.applied for link in links if link.applied is not None]

    def each(values: Iterable[str | None]) -> tuple[str, ...]:
        return tuple(sorted({value for value in values if value}))

    return Machines(
        hosts=each(map(host_of, environments)),
        processors=each(one.cpu for one in environments),
        cores=tuple(sorted({one.cores for one in environments if one.cores})),
        kernels=each(one.kernel for one in environments),
        torch=each(one.packages.get("torch") for one in environments),
        commits=each(map(commit_of, environments)),
        backends=each(link.backend for link in links),
        congestion_control=each(one.tcp.get("tcp_congestion_control") for one in applied),
    )
