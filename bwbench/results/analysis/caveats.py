"""What must be said of results: machines and versions that are mixed, and how far links and composed times are off.

Links are compared with what was asked, composed times with those of cells that ran whole as well.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bwbench.base.plain_data import list_at, mapping_at
from bwbench.base.units import BANDWIDTH, DURATION, Dimension
from bwbench.methods.roles import METHOD
from bwbench.records import CellFolder
from bwbench.records.schema import Environment, LinkRecord, MeasuredPair, Measurement
from bwbench.results.analysis.cells import name_of, standing_of

BEFORE, AFTER = "before", "after"
COMPOSED_MARK = "†"  # behind times and names of arms with composed cells, and before the note that says what that means
_HIGH = 0.95
_AND = "+"  # between the names of hosts that a cell ran on


@dataclass(frozen=True)
class PairError:
    """One pair of nodes in one measurement: achieved over asked, less 1; None where one of the two is not known.

    Attributes:
        rtt_off_s: seconds that a round trip took longer than asked.
    """

    src: int
    dst: int
    goodput: float | None
    rtt: float | None
    rtt_off_s: float | None


@dataclass(frozen=True)
class Spread:
    """Sizes of errors, as shares without sign; None without any."""

    num: int
    median: float | None
    p95: float | None
    worst: float | None

    @classmethod
    def of(cls, errors: Iterable[float | None]) -> Spread:
        """Of signed shares; those that are not known do not count."""
        off = sorted(abs(error) for error in errors if error is not None)
        if not off:
            return cls(0, None, None, None)
        return cls(len(off), statistics.median(off), off[math.ceil(_HIGH * len(off)) - 1], off[-1])


def measured_links(folders: Iterable[CellFolder]) -> Iterator[tuple[CellFolder, LinkRecord]]:
    """Every link that was there, with its first cell: cells that are composed of one timing run share its link."""
    seen: set[str] = set()
    for folder in folders:
        composed = folder.status.composed if folder.status is not None else None
        run = composed.timing if composed is not None else folder.cell.id
        if run not in seen and folder.link is not None:
            seen.add(run)
            yield folder, folder.link


def measurements_of(link: LinkRecord) -> list[tuple[str, Measurement]]:
    """Those that there are, BEFORE and AFTER the training, in the time of the link that was asked."""
    asked = link.in_asked_time
    both = ((BEFORE, asked.achieved_before), (AFTER, asked.achieved_after))
    return [(when, measured) for when, measured in both if measured is not None]


def pair_errors(measured: Measurement) -> Iterator[PairError]:
    """The errors of every pair of nodes."""
    for pair in measured.pairs:
        asked_s, achieved_s = pair.asked_rtt_s, pair.achieved_rtt_s
        off_s = None if asked_s is None or achieved_s is None else achieved_s - asked_s
        goodput = _error(pair.achieved_goodput_bps, pair.asked_goodput_bps)
        yield PairError(pair.src, pair.dst, goodput, _error(achieved_s, asked_s), off_s)


def link_errors(folders: Iterable[CellFolder]) -> list[PairError]:
    """Of all links of these cells, each once."""
    links = [link for _, link in measured_links(folders)]
    return [error for link in links for _, measured in measurements_of(link) for error in pair_errors(measured)]


def _error(achieved: float | None, asked: float | None) -> float | None:
    return None if achieved is None or not asked else achieved / asked - 1


NOTICED_CORES = 0.05  # taken by others in mean: of a machine of two, a few percent of a step that needs both


@dataclass(frozen=True)
class ComposedError:
    """One cell, both ways. Seconds to the target, or to the end where neither way reached it.

    Attributes:
        inside: whether the whole run's time lies in the interval of the composed one; None where that has none.
        disturbed: whether other programs took more than ``NOTICED_CORES`` while it ran whole; False where the record
            does not know.
    """

    id: str
    slug: str
    arm: str
    composed_s: float
    whole_s: float
    inside: bool | None
    disturbed: bool = False

    @property
    def error(self) -> float:
        """Share by which the composed time is too long; negative where it is too short."""
        return self.composed_s / self.whole_s - 1


def composed_errors(folders: Iterable[CellFolder]) -> list[ComposedError]:
    """Of every cell that ran whole and was composed as well."""
    found = (composed_error(folder) for folder in folders)
    return [error for error in found if error is not None]


def composed_error(folder: CellFolder) -> ComposedError | None:
    """Of one cell; None where it was not made both ways, where one way reached the target and the other did not, and
    where ``limit.time`` ended it: both ways end there, however far one of them has got. None as well where nothing went
    over a link (one node alone, an unshaped link, a free network): that says nothing about composing."""
    if not _over_a_link(folder):
        return None
    status = folder.status
    if status is None or status.status != "done" or status.composed is not None:
        return None
    if (composed := folder.composed_beside) is None:
        return None
    for one, other, ended in (
        (composed.time_to_target_s, status.time_to_target_s, False),
        (composed.censored_at_s, status.censored_at_s, True),
        (composed.training_clock_s, status.training_clock_s, True),
    ):
        if one is None and other is None:
            continue
        if one is None or not other or (ended and "time" in (composed.reason, status.reason)):
            return None
        cell, ends = folder.cell, composed.interval_s
        inside = ends[0] <= other <= ends[1] if ends else None
        others = folder.environment.others if folder.environment is not None else None
        disturbed = others is not None and (others.cores or 0.0) > NOTICED_CORES
        return ComposedError(cell.id, cell.slug, cell.arm, one, other, inside, disturbed)
    return None


def _over_a_link(folder: CellFolder) -> bool:
    """Whether nodes of a cell communicate over a shaped link."""
    cell = folder.cell
    return standing_of(cell).role == METHOD and mapping_at(cell.config, "link").get("shaped", True) is not False


def composed_note(num_composed: int, num_cells: int, errors: Sequence[float], num_disturbed: int = 0) -> str | None:
    """What must be said of composed cells wherever they are shown; None where there are none.

    Args:
        num_cells: all that are done.
        errors: ``ComposedError.error`` of those that were made both ways; ``num_disturbed`` of them were disturbed.
    """
    if not num_composed and not errors:
        return None
    text = f"Composed of a run without the link and some steps timed on it: {num_composed} of {num_cells} cells"
    if not errors:
        return f"{text}; none ran whole as well, so their error is not known."
    off = [abs(error) for error in errors]
    middle, most = 100 * statistics.median(off), 100 * max(off)
    measured = f"composed times are off by {middle:.1f} % (median), {most:.1f} % at most"
    if num_disturbed:
        measured += f"; other programs took more than {NOTICED_CORES:g} processors during {num_disturbed} of these runs"
    return f"{text}; {len(errors)} ran whole as well: {measured}."


_COMMIT_DIGITS = 10


Provenance = tuple[str, str, str, str]  # host, kernel, commit, how codecs ran


def provenance_note(folders: Iterable[CellFolder]) -> str | None:
    """For under a picture: where hosts, kernels, commits or ways of codecs are mixed, where nodes were virtual, and
    what a network was that nobody asked for; else None.
    """
    cells = list(folders)
    notes = (mixed_note(provenance_of(folder) for folder in cells), virtual_note(cells), real_network_note(cells))
    return " ".join(filter(None, notes)) or None


def virtual_note(folders: Iterable[CellFolder]) -> str | None:
    """A sentence where cells have times that say nothing, because all their nodes shared a process; else None."""
    environments = [folder.environment for folder in folders]
    number = sum(environment is not None and environment.virtual for environment in environments)
    return virtual_in_words(number, len(environments))


def virtual_in_words(number: int, num_cells: int) -> str | None:
    """The same sentence where cells have been counted already."""
    if not number:
        return None
    what = "what they learn is right, their times say nothing"
    return f"Virtual nodes in {number} of {num_cells} cells: {what}; compare samples and metrics."


def provenance_of(folder: CellFolder) -> Provenance:
    """Where and by which version a cell was made; each empty where it was not recorded."""
    environment = folder.environment
    kernel = environment.kernel if environment is not None else None
    codecs = list_at(folder.cell.config, "compression") or ["none"]
    how = "" if all(name_of(codec) == "none" for codec in codecs) else codecs_of(environment)
    return host_of(environment), kernel or "", commit_of(environment), how


def codecs_of(environment: Environment | None) -> str:
    """How codecs ran there, to the same bits: ``compiled`` or, more slowly, ``in Python``; empty where nobody said."""
    if environment is None or environment.compiled_codecs is None:
        return ""
    return "compiled" if environment.compiled_codecs else "in Python"


def mixed_note(provenances: Iterable[Provenance]) -> str | None:
    """The same sentence for cells whose provenance is known already."""
    distinct, parts = set(provenances), []
    for index, what in enumerate(("hosts", "kernels", "commits", "ways of codecs")):
        known = sorted({provenance[index] for provenance in distinct} - {""})
        if what == "hosts":  # one node alone runs on the first of those that the others run on
            each = {name: set(name.split(_AND)) for name in known}
            known = [name for name in known if not any(each[name] < other for other in each.values())]
        if len(known) > 1:
            parts.append(f"{len(known)} {what} ({', '.join(known)})")
    return f"Mixed: {'; '.join(parts)}." if parts else None


def host_of(environment: Environment | None) -> str:
    """The machine or machines that a cell ran on; empty where it was not recorded."""
    if environment is None:
        return ""
    if environment.hosts is not None:
        return _AND.join(sorted({host.name or host.host or host.address or "?" for host in environment.hosts}))
    return environment.host or ""


def real_network_note(folders: Iterable[CellFolder]) -> str | None:
    """A sentence on what the network between hosts was, where it was used as it is; else None.

    By what the ranks found before each training, of those pairs that are on two hosts.
    """
    found: list[MeasuredPair] = []
    for folder in folders:
        hosts = (folder.environment.hosts if folder.environment is not None else None) or ()
        link = folder.link if len(hosts) > 1 else None
        if link is not None and link.backend == "none" and link.achieved_before is not None:
            addresses = dict(enumerate(host.address for host in hosts))
            pairs = link.achieved_before.pairs
            found += [pair for pair in pairs if addresses.get(pair.src) != addresses.get(pair.dst)]
    rates = [pair.achieved_goodput_bps for pair in found if pair.achieved_goodput_bps is not None]
    rtts_s = [pair.achieved_rtt_s for pair in found if pair.achieved_rtt_s is not None]
    if not rates or not rtts_s:
        return None
    rate, rtt = _range(rates, BANDWIDTH), _range(rtts_s, DURATION)
    return f"Between the hosts, before each training: TCP carried {rate} while all sent, a round trip took {rtt}."


def _range(values: Sequence[float], unit: Dimension) -> str:
    least, most = unit.show(min(values), 3), unit.show(max(values), 3)
    return least if least == most else f"{least} to {most}"


def unlike_hosts_note(folders: Iterable[CellFolder]) -> str | None:
    """A sentence for under a picture where the ranks of a cell ran on hosts that are not alike, else None."""
    found: dict[str, set[str]] = {}
    for folder in folders:
        hosts = folder.environment.hosts if folder.environment is not None else None
        for host in hosts or ():
            for what, value in (  # what makes one host faster than another, as far as recorded
                ("processor", host.cpu),
                ("number of cores", host.cores),
                ("kernel", host.kernel),
                ("codecs", codecs_of(host) or None),
                ("congestion control", host.tcp.get("tcp_congestion_control")),
            ):
                if value is not None:
                    found.setdefault(what, set()).add(str(value))
    parts = [f"{what} ({', '.join(sorted(values))})" for what, values in found.items() if len(values) > 1]
    return f"Ranks ran on hosts that differ in {'; '.join(parts)}." if parts else None


def shared_hosts_note(folders: Iterable[CellFolder]) -> str | None:
    """A sentence for under a picture that counts ranks and hosts where ranks shared a host, else None."""
    found: set[tuple[int, int]] = set()
    for folder in folders:
        addresses = [host.address for host in (folder.environment.hosts if folder.environment else None) or ()]
        if len(set(addresses)) < len(addresses) and None not in addresses:
            found.add((len(set(addresses)), len(addresses)))
    counted = " and ".join(f"{ranks} on {hosts}" for hosts, ranks in sorted(found))
    return f"Ranks shared hosts: {counted}." if found else None


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
    told = [link.applied.tcp for link in links if link.applied is not None]
    told += [host.tcp for environment in environments for host in environment.hosts or ()]  # real ones keep their own

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
        congestion_control=each(one.get("tcp_congestion_control") for one in told),
    )
