"""Links asked against achieved, what was left out, and the doubts that follow from the records themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bwbench.base.plain_data import mapping_at
from bwbench.base.step_time import recorded_step_times
from bwbench.records import CellFolder
from bwbench.results.analysis.arm_labels import arm_labels
from bwbench.results.analysis.arrival import CENSORED, FIRST_CROSSING
from bwbench.results.analysis.caveats import (
    Spread,
    composed_errors,
    machines_of,
    measured_links,
    measurements_of,
    pair_errors,
    virtual_note,
)
from bwbench.results.analysis.cell_arrival import arrival_of_cell
from bwbench.results.analysis.cells import DONE, PLANNED, UNFINISHED, is_composed, setting_of, state_of
from bwbench.results.analysis.statistics import ONE_REPEAT
from bwbench.results.section.content import Block, Bullets, Lines, Paragraph, Table
from bwbench.results.text import Number, Phrase, fixed, percent, phrase

_WORDS = {PLANNED: "not run yet", UNFINISHED: "unfinished"}
_MOST_REASONS = 8  # a list of hundreds helps nobody in a paper; `bwbench status` has them all


def link_blocks(done: Sequence[CellFolder]) -> Iterator[Block]:
    """How far achieved rates and round trips are from those asked for."""
    probes = [measured for _, link in measured_links(done) for _, measured in measurements_of(link)]
    errors = [error for measured in probes for error in pair_errors(measured)]
    rate = Spread.of(error.goodput for error in errors)
    if rate.median is None or rate.p95 is None or rate.worst is None:
        return
    tight = phrase(Number("link rate median", percent(rate.median)), " in the median, ")
    tail = phrase(Number("link rate most of pairs", percent(rate.p95)), " for 95 % of them, ")
    most = phrase(Number("link rate most", percent(rate.worst)), " at most")
    probed = phrase(Number("link probes", str(len(probes))), " probes, ")
    pairs = phrase(Number("link pairs", str(rate.num)), " pairs of nodes")
    text = phrase("Links were measured before and after training (", probed, pairs, "): the rate achieved differs ")
    text = phrase(text, "from the one asked for by ", tight, tail, most, ".")
    off_s = [error.rtt_off_s for error in errors if error.rtt_off_s is not None]
    if off_s:
        low, high = (Number(f"link rtt {end}", fixed(1e3 * value, 2)) for end, value in
                     (("low", min(off_s)), ("high", max(off_s))))  # fmt: skip
        text = phrase(text, " Round trips on the idle link differ by ", low, " to ", high, " ms.")
    yield Paragraph(text)


def link_table(experiments: Mapping[str, Sequence[CellFolder]]) -> Iterator[Table]:
    """How far links were from what was asked, a row an experiment; no table where nothing was measured.

    Args:
        experiments: the cells that are done, by the name of their experiment.
    """
    rows: list[list[Lines]] = []
    for name, done in experiments.items():
        links = [link for _, link in measured_links(done)]
        errors = [error for link in links for _, measured in measurements_of(link) for error in pair_errors(measured)]
        rate = Spread.of(error.goodput for error in errors)
        trip_ms = Spread.of(None if error.rtt_off_s is None else 1e3 * error.rtt_off_s for error in errors)
        if not rate.num:
            continue
        rates = [_share(f"{name} link rate {part}", value) for part, value in _parts(rate)]
        trips = [_milliseconds(f"{name} link trip {part}", value) for part, value in _parts(trip_ms)]
        counts = (("links", len(links)), ("link pairs", rate.num))
        rows.append([[phrase(name)], *([phrase(Number(f"{name} {what}", str(count)))] for what, count in counts),
                     *([text] for text in (*rates, *trips))])  # fmt: skip
    if rows:
        heads = ("rate: median", "95 %", "most", "round trip: median", "95 %", "most")
        header = [phrase(text) for text in ("experiment", "links", "measured", *heads)]
        caption = "How far links were off what was asked, before and after training; measured: pairs of nodes."
        yield Table("links", phrase(caption), header, rows)


def _parts(spread: Spread) -> list[tuple[str, float | None]]:
    return [("median", spread.median), ("most of pairs", spread.p95), ("most", spread.worst)]


def _share(key: str, value: float | None) -> Phrase:
    return phrase("–" if value is None else Number(key, percent(value)))


def _milliseconds(key: str, value: float | None) -> Phrase:
    return phrase("–" if value is None else Number(key, f"{fixed(value, 2)} ms"))


def left_out_blocks(folders: Sequence[CellFolder]) -> Iterator[Block]:
    """How many cells are in no table, by what became of them, with the reasons that were recorded."""
    states = Counter(state_of(folder) for folder in folders)
    missing = {state: count for state, count in sorted(states.items()) if state != DONE}
    all_cells = Number("cells", str(len(folders)))
    if not missing:
        yield Paragraph(phrase("All ", all_cells, " cells are done; none is left out."))
        return
    parts = ", ".join(f"{count} {_WORDS.get(state, state)}" for state, count in missing.items())
    yield Paragraph(phrase("Left out of ", all_cells, " cells: ", Number("cells left out", parts), "."))
    reasons, labels = Counter[str](), arm_labels(folder.cell for folder in folders)
    for folder in folders:
        reason = (folder.status.reason if folder.status is not None else None) or ""
        if state_of(folder) != DONE and reason:
            reasons[f"{labels[folder.cell.arm]}, {state_of(folder)}: {reason.splitlines()[0]}"] += 1
    lines = [phrase(f"{text} ({count}x)" if count > 1 else text) for text, count in sorted(reasons.items())]
    if len(lines) > _MOST_REASONS:
        lines = [*lines[:_MOST_REASONS], phrase(f"and {len(lines) - _MOST_REASONS} more.")]
    if lines:
        yield Bullets(lines)


def threat_blocks(folders: Sequence[CellFolder]) -> Iterator[Block]:
    """What a reader should doubt, as far as records tell."""
    done = [folder for folder in folders if state_of(folder) == DONE]
    doubts = (_few_seeds, _shared_cores, _composed, _virtual, _mixed, _emulated, _stopped)
    found = [doubt for doubts_of in doubts for doubt in doubts_of(done)]
    if found:
        yield Bullets(found)


def _few_seeds(done: Sequence[CellFolder]) -> Iterator[Phrase]:
    counts = Counter((folder.cell.arm, setting_of(folder.cell.config).bandwidth_bps) for folder in done)
    seeds = {setting_of(folder.cell.config).seed for folder in done}
    if len(seeds) == 1:
        yield phrase(f"One seed (n = 1): {ONE_REPEAT}, and there are no intervals over seeds.")
    elif counts and min(counts.values()) < 3:
        yield phrase("Fewer than three repeats of some arms: their intervals are very wide or missing.")


def _shared_cores(done: Sequence[CellFolder]) -> Iterator[Phrase]:
    cores = machines_of(done).cores
    local = [folder for folder in done if folder.environment is None or folder.environment.hosts is None]
    nodes = max((setting_of(folder.cell.config).nodes for folder in local), default=1)
    if cores and nodes > min(cores):
        text = phrase(Number("most nodes", str(nodes)), " nodes shared ", Number("fewest cores", str(min(cores))))
        padded = all(str(recorded_step_times(mapping_at(folder.cell.config, "compute"))) for folder in local)
        how = "; steps are padded to a declared time for that reason." if padded else ", and steps are not padded."
        yield phrase(text, " cores of one host", how)


def _composed(done: Sequence[CellFolder]) -> Iterator[Phrase]:
    if any(map(is_composed, done)):
        text = "Composed times: links share their convergence runs, repeats their timing runs; they do not err alone."
        if not composed_errors(done):
            text += " No cell ran whole beside them."
        yield phrase(text)


def _virtual(done: Sequence[CellFolder]) -> Iterator[Phrase]:
    if (note := virtual_note(done)) is not None:
        yield phrase(note)


def _mixed(done: Sequence[CellFolder]) -> Iterator[Phrase]:
    found = machines_of(done)
    for what, values in (("hosts", found.hosts), ("kernels", found.kernels), ("commits", found.commits)):
        if len(values) > 1:
            yield phrase("Mixed ", Number(f"mixed {what}", f"{len(values)} {what}"), f": {', '.join(values)}.")
    changed = [commit for commit in found.commits if commit.endswith("+")]
    if changed:
        yield phrase(f"The working tree had changes: {', '.join(changed)}.")


def _emulated(done: Sequence[CellFolder]) -> Iterator[Phrase]:
    backends = machines_of(done).backends
    if {"relay", "netem"} & set(backends):
        yield phrase(
            f"Links are emulated ({', '.join(backends)}): rates, delays and losses are there, the radio is not."
        )


def _stopped(done: Sequence[CellFolder]) -> Iterator[Phrase]:
    kinds = [arrival_of_cell(folder).arrival_kind for folder in done]
    if censored := kinds.count(CENSORED):
        text = phrase(Number("cells censored", str(censored)), " of ", Number("cells done", str(len(done))))
        yield phrase(text, " cells ended at their limit without the target, or reached it too late in it; they are "
                     "shown as > limit.")  # fmt: skip
    if crossed := kinds.count(FIRST_CROSSING):
        text = phrase(Number("cells at a first crossing", str(crossed)), " of ", Number("cells done", str(len(done))))
        yield phrase(text, " cells have the time of the first evaluation that met the target. It is a lucky one: these "
                     "times are too short, the more so the more an arm's metric flickers.")  # fmt: skip
