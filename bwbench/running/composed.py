"""One cell of a sweep, whichever way it comes by its result: whole, composed, or both.

A composed cell needs a convergence run and some timing runs. They are made once and shared, and its time to accuracy is
put together from what they recorded (docs/composed.md).
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import CellTakenError, RecordError, UnfitMachineError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.composing import (
    COMPOSED,
    CONVERGENCE,
    CONVERGENCE_FOLDER,
    TIMING,
    TIMING_FOLDER,
    WHOLE,
    Parts,
    parts_of,
)
from bwbench.experiment.plan.earlier_seed import earlier_seed
from bwbench.experiment.plan.estimate import estimate_cells
from bwbench.methods.phases import UNTIMED_STEPS, Phase, walk
from bwbench.records import CellFolder, read_record, write_record
from bwbench.records.checksums import with_checksums
from bwbench.records.files import full_disk_said
from bwbench.records.lock import claim_of, claimed
from bwbench.records.schema import (
    PARTS,
    Composed,
    ComposedFrom,
    Ending,
    Kind,
    LedgerSummary,
    LinkRecord,
    Status,
    TrialSummary,
    finite,
)
from bwbench.results.analysis.compose import compose, geometric_mean
from bwbench.results.analysis.composition import Composition, NotComposableError, Trained, composition
from bwbench.results.analysis.crossover import gradient_bytes_of
from bwbench.results.analysis.targets import arrivals_on
from bwbench.results.analysis.times_of_seed import TimesOfSeed
from bwbench.results.analysis.trial import EventsByRank, RankStep, evaluations, step_ledgers, summarise_ledger
from bwbench.running.machine_turn import TURN_LIMIT_S
from bwbench.running.run_cell import CellObserver, NotingObserver, keep_planned, run_cell
from bwbench.running.run_cell import wall_limit_s as wall_limit_of

LOOK_AT_CLAIMS_S = 0.5
WAIT_LIMIT_S = 2 * TURN_LIMIT_S  # for a run elsewhere, which may itself wait for its turn
_STARTED_UNIX_S = time.time()  # parts that failed in an earlier run are tried again, once


def run_item(item: PlannedCell, wall_limit_s: float, observer: CellObserver) -> Status:
    """One attempt at a cell, the way that it was planned; it takes the place of ``run_cell`` in a sweep.

    A composed cell brings about the convergence and the timing runs that it needs, where they are not there yet. They
    are cells like others, in ``<results>/.convergence/`` and ``<results>/<experiment>/.timing/``.

    Raises what ``run_cell`` raises, and ConfigError or LaunchError where the model cannot be described.
    """
    if item.way == WHOLE or item.part:
        return run_cell(item, wall_limit_s, observer)
    if item.way == COMPOSED:
        return _compose(item, wall_limit_s, observer)
    _compose_beside(item, wall_limit_s, observer)  # first, so that a cell that is done lacks nothing
    return run_cell(item, wall_limit_s, observer)


@dataclass(frozen=True)
class _Made:
    """What a cell is composed from, once it is there; ``timing_pilot`` as of a ``PlannedCell``.

    ``earlier`` is the published cell of an earlier seed that says what steps take; there are no timing runs then.
    """

    parts: Parts
    convergence: CellFolder
    timings: tuple[CellFolder, ...]
    timing_pilot: int | None
    earlier: CellFolder | None = None

    @property
    def timed(self) -> Sequence[CellFolder]:
        """Cells whose records say what was timed."""
        return self.timings if self.earlier is None else (self.earlier,)


class _PartUndoneError(Exception):
    """One of the runs that a cell is composed from did not end as it should.

    ``status`` is what the cell is to be called; ``part`` says which attempt it was, that fails other cells as well.
    """

    def __init__(self, status: Ending, reason: str, part: str) -> None:
        super().__init__(reason)
        self.status, self.part = status, part


def _compose(item: PlannedCell, wall_limit_s: float, observer: CellObserver) -> Status:
    """Make the cell's status.json out of its parts."""
    begun = time.monotonic()
    with full_disk_said(item.folder), claimed(item.folder) as claim:
        recorded = read_record(Status, item.folder / "status.json")
        if recorded is not None and recorded.status == "done":
            if recorded.composed is None or not recorded.composed.lacks(item.timing_runs):
                return recorded  # another process was quicker
        keep_planned(item)
        status = _composed_now(item, wall_limit_s, NotingObserver(item.cell, observer, claim), begun)
        status = with_checksums(status, item.folder)
        write_record(item.folder / "status.json", status)
        return status


def _composed_now(item: PlannedCell, wall_limit_s: float, standing: NotingObserver, begun_mono_s: float) -> Status:
    """What composing the cell comes to; composed.json is written where it succeeds."""
    cell, part = item.cell, None
    ending: Ending = "failed"
    try:
        made = _make(item, wall_limit_s, standing)
        found = put_together(cell, made)
        write_record(CellFolder(item.folder).composed_file, composed_record(cell, made, found))
    except _PartUndoneError as error:
        ending, why, part = error.status, str(error), error.part
    except (NotComposableError, RecordError) as error:
        why = str(error)
    else:
        return composed_status(item, made, found, time.monotonic() - begun_mono_s)
    undone = {"undone_part": part} if part is not None else {}
    return Status(
        id=cell.id,
        slug=cell.slug,
        status=ending,
        reason=f"cannot be composed: {why}",
        attempt=item.attempt,
        wall_s=time.monotonic() - begun_mono_s,
        **undone,
    )


def _compose_beside(item: PlannedCell, wall_limit_s: float, observer: CellObserver) -> None:
    """Compose a cell that runs whole, for comparison. That its parts fail is no failure of the cell."""
    with full_disk_said(item.folder), claimed(item.folder) as claim:
        try:
            made = _make(item, wall_limit_s, NotingObserver(item.cell, observer, claim))
            record = composed_record(item.cell, made, put_together(item.cell, made))
        except (_PartUndoneError, NotComposableError, RecordError):
            return
        write_record(CellFolder(item.folder).composed_file, record)


def _make(item: PlannedCell, wall_limit_s: float, standing: NotingObserver) -> _Made:
    """All parts, run where they have not been yet. Raises _PartUndoneError where one is not done."""
    parts = parts_of(item.cell, timing_runs=item.timing_runs)
    folders, earlier = [], earlier_seed(item, parts)
    for name, cell, folder in parts_in(parts, item.folder.parent, timed=earlier is None):
        standing.doing = name
        status = _run_part(cell, folder, wall_limit_s, standing)
        if status.status != "done":
            reason, part = f"its {name} run ({folder}): {status.reason}", f"{cell.id}/attempt-{status.attempt}"
            raise _PartUndoneError(status.status, reason, part)
        folders.append(CellFolder(folder))
    return _Made(parts, folders[0], tuple(folders[1:]), item.timing_pilot, earlier)


def parts_in(parts: Parts, experiment: Path, *, timed: bool = True) -> Iterator[tuple[str, Cell, Path]]:
    """Name, cell and folder of the convergence run and, if ``timed``, every timing run of a cell in ``experiment``."""
    store = experiment.parent / CONVERGENCE_FOLDER
    yield CONVERGENCE, parts.convergence, located(parts.convergence, store)
    for timing in parts.timings if timed else ():
        yield TIMING, timing, located(timing, experiment / TIMING_FOLDER)


def located(cell: Cell, store: Path) -> Path:
    """The folder of a cell in a store, by its id: experiments may call equal cells differently."""
    try:
        names = sorted(os.listdir(store))
    except OSError:
        names = []
    known = next((name for name in names if name.rpartition("-")[2] == cell.id), None)
    return store / (known or cell.folder_name)


def _run_part(cell: Cell, folder: Path, wall_limit_s: float, observer: CellObserver) -> Status:
    """Status of a cell that others may need as well: run here, found done, or waited for."""
    while True:
        recorded = read_record(Status, folder / "status.json")
        if recorded is not None:
            ended_now = False
            with contextlib.suppress(FileNotFoundError):  # another process has removed it meanwhile, to try again
                ended_now = (folder / "status.json").stat().st_mtime >= _STARTED_UNIX_S
            if recorded.status == "done" or (ended_now and recorded.status != "interrupted"):
                return recorded
        attempt = (recorded.attempt or 0) if recorded is not None else 0
        # The limit of the cell that needs it may be too low: limit.time ends that one, but not a convergence run.
        limit_s = max(wall_limit_s, wall_limit_of(estimate_cells([cell])[cell.id].predicted_s))
        try:
            return run_cell(
                PlannedCell(cell, folder, "missing", runs=True, why="needed", attempt=attempt), limit_s, observer
            )
        except CellTakenError:
            observer.cell_phase(cell, "waiting for another bwbench that runs it")
            _wait_for(folder)


def _wait_for(folder: Path, limit_s: float = WAIT_LIMIT_S) -> None:
    """Until no process holds a cell any more. Raises UnfitMachineError after ``limit_s``: its holder is stopped."""
    deadline = time.monotonic() + limit_s
    while claim_of(folder) is not None:
        if time.monotonic() > deadline:
            text = f"another bwbench has been running {folder.name} for {limit_s / 3600:.0f} h; is it stopped?"
            raise UnfitMachineError(f"{text} End it, then run this again")
        time.sleep(LOOK_AT_CLAIMS_S)


def put_together(cell: Cell, made: _Made) -> Composition:
    """The cell's run as it would have been. Raises NotComposableError where the parts do not fit."""
    config, parts = cell.config, made.parts
    ends = {"has_target": config.target is not None, "ends_at_target": config.stop == "target"}
    if made.earlier is not None and made.earlier.composed is not None:
        trained = Trained.of(made.convergence.events(), parts.phases)
        return composition(trained, TimesOfSeed(trained, made.earlier.composed, parts.seconds_per_byte), **ends)
    return compose(
        made.convergence.events(),
        [timing.events() for timing in made.timings],
        parts.phases,
        parts.timing_phases,
        **ends,
        limit_s=config.limit.time_s,
        seconds_per_byte=parts.seconds_per_byte,
        timing_pilot=made.timing_pilot,
        seed=int(cell.id, 16) % 2**32,
    )


def composed_record(cell: Cell, made: _Made, found: Composition) -> Composed:
    """composed.json: all that tables and figures need, so that they need not look at the parts."""
    link = made.timed[0].link or LinkRecord()
    return Composed(
        id=cell.id,
        **dict(_sources(made, found)),
        time_to_target_s=found.time_to_target_s,
        censored_at_s=found.censored_at_s,
        training_clock_s=found.training_clock_s,
        reason=found.reason,
        kinds=found.kinds,
        curve=found.curve,
        ledger=_ledger(made, found.kinds),
        gradient_bytes=gradient_bytes_of(made.convergence),
        link=link.model_copy(update={"wire": None}),  # whose bytes are those of that run
        environment=made.timed[0].environment,
    )


def composed_status(item: PlannedCell, made: _Made, found: Composition, wall_s: float) -> Status:
    """status.json. What the link decides is the timing runs', the rest the convergence run's.

    Args:
        wall_s: that composing took, with the runs that had to be made for it.
    """
    computed = made.convergence.status or TrialSummary()
    timed = _timed(made.timed)
    target = item.cell.config.target
    config = item.cell.config.model_dump(mode="json", by_alias=True)
    metric = target.metric if target is not None else computed.metric
    whole = found.steps == computed.steps
    payload = (computed.payload_bytes or 0) if whole else found.payload_bytes
    wire_ratio = None
    if timed.wire_bytes is not None and timed.payload_bytes is not None:
        wire_ratio = timed.wire_bytes / timed.payload_bytes if timed.payload_bytes else 0.0
    to_target = found.payload_bytes_to_target
    status = Status(
        id=item.cell.id,
        slug=item.cell.slug,
        status="done",
        reason=found.reason,
        attempt=item.attempt,
        wall_s=wall_s,
        overhead_s=None,
        metric=metric,
        time_to_target_s=found.time_to_target_s,
        censored_at_s=found.censored_at_s,
        samples_to_target=found.samples_to_target,
        payload_bytes_to_target=to_target,
        wire_bytes_to_target=None if to_target is None or wire_ratio is None else round(to_target * wire_ratio),
        final_metric=found.curve[-1].metrics.get(metric) if metric and found.curve else None,
        test_metric=found.curve[-1].test.get(metric) if metric and found.curve else None,
        steps=found.steps,
        samples=found.samples,
        training_clock_s=found.training_clock_s,
        evaluation_s=computed.evaluation_s,
        payload_bytes=payload,
        wire_bytes=None if wire_ratio is None else round(payload * wire_ratio),
        replicas_identical=computed.replicas_identical if whole else None,
        ledger_error=timed.ledger_error,
        compute_median_s=timed.compute_median_s,
        step_median_s=timed.step_median_s,
        composed=_sources(made, found),
        arrivals=arrivals_on(found.curve, config, went_on=found.reason != "target"),
    )
    if computed.weights is None:
        return status
    beside = found.curve[-1].beside.get(metric) if metric and found.curve else None
    return status.model_copy(update={"weights": computed.weights, "beside_metric": beside})


def _timed(timings: Sequence[CellFolder]) -> TrialSummary:
    """What several timing runs measured: of bytes the sums, of durations the geometric means, the worst error."""
    found = [timing.status or TrialSummary() for timing in timings]

    def each(name: str) -> list[float]:
        return [value for one in found if (value := getattr(one, name)) is not None]

    medians = {name: each(name) for name in ("compute_median_s", "step_median_s")}
    return TrialSummary.model_validate(
        {name: sum(values) if (values := each(name)) else None for name in ("payload_bytes", "wire_bytes")}
        | {name: geometric_mean(values) if values else None for name, values in medians.items()}
        | {"ledger_error": max(each("ledger_error"), default=None)}
    )


def _ledger(made: _Made, kinds: Sequence[Kind]) -> LedgerSummary | None:
    """Mean over the timing runs of the composed run's steps; None where one has recorded none.

    Of an earlier seed it is that seed's.
    """
    if made.earlier is not None:
        return made.earlier.composed.ledger if made.earlier.composed is not None else None
    found = [weighted_ledger(timing.events(), made.parts.timing_phases, kinds) for timing in made.timings]
    known = [ledger for ledger in found if ledger is not None]
    if len(known) < len(found) or len(known) == 1:
        return known[0] if len(known) == len(found) else None

    def mean_of_parts(name: str) -> dict[str, float]:
        return {part: statistics.fmean(getattr(one, name)[part] for one in known) for part in PARTS}

    return known[0].model_copy(
        update={
            **{name: mean_of_parts(name) for name in ("mean_s", "median_s")},
            **{
                name: statistics.fmean(getattr(one, name) for one in known) for name in ("step_mean_s", "step_median_s")
            },
            "num_steps": sum(one.num_steps for one in known),
            "additivity_error": max(one.additivity_error for one in known),
        }
    )


def weighted_ledger(timing: EventsByRank, phases: Sequence[Phase], kinds: Sequence[Kind]) -> LedgerSummary | None:
    """Summary of the composed run's steps; None where the timing run recorded none. Pure.

    Means are those of the composed run; rounds are rarer there than in the timing run. Medians are those of the kind
    that most of its steps are of.

    Args:
        timing: events of the timing run's ranks.
        phases: of the timing run.
        kinds: of the composed run, with the number of steps of each.
    """
    summary = summarise_ledger(timing)
    if summary is None:
        return None
    drained = {e.step for events in timing.values() for e in evaluations(events, "validation")}
    ledgers = list(step_ledgers(timing))
    kind_of = {step.number: step.kind for step in walk(phases, max(ledger.step for ledger in ledgers), drained)}
    by_kind: dict[str, list[RankStep]] = {}
    for ledger in ledgers:
        if ledger.step > UNTIMED_STEPS:
            by_kind.setdefault(kind_of[ledger.step], []).append(ledger)
    weights = {kind.name: kind.num_steps for kind in kinds if kind.num_steps and kind.name in by_kind}
    if not weights:
        return summary
    usual = by_kind[max(weights, key=lambda name: weights[name])]

    def mean(part: str) -> float:
        sums = (
            count * statistics.fmean(getattr(one, part) for one in by_kind[name]) for name, count in weights.items()
        )
        return sum(sums) / sum(weights.values())

    return summary.model_copy(
        update={
            "mean_s": {part: mean(part) for part in PARTS},
            "median_s": {part: statistics.median(getattr(one, part) for one in usual) for part in PARTS},
            "step_mean_s": mean("duration_s"),
            "step_median_s": statistics.median(one.duration_s for one in usual),
        }
    )


def _sources(made: _Made, found: Composition) -> ComposedFrom:
    timings = tuple(timing.id for timing in made.parts.timings)
    between = {"within_share": finite(found.within_share), "between_share": finite(found.between_share)}
    pilot = {} if made.timing_pilot is None else {"timing_pilot": made.timing_pilot}
    earlier = {} if made.earlier is None else {"timed_with": made.earlier.cell.id}
    return ComposedFrom(
        convergence=made.convergence.cell.id,
        timing=timings[0],
        timings=timings,
        interval_s=found.interval_s,
        **({**between, **pilot} if len(timings) > 1 else {}),
        timed_steps=sum(kind.num_timed for kind in found.kinds if kind.name != "evaluation"),
        max_payload_ratio=finite(found.max_payload_ratio),
        **earlier,
    )
