"""What stands beside the cells of an experiment: ``plan.json``, and the first line of its published file."""

from __future__ import annotations

from typing import Literal

from bwbench.base.plain_data import Json
from bwbench.records.schema.record import FolderName, Number, Record, Text, Versioned, Whole


class PlanAbout(Record):
    """The experiment of a plan.

    Attributes:
        name, file: of the experiment; bwbench_version: that planned it.
        repeats, seed, plugins, varying: as configured; varying: keys that the matrix varies.
        warnings: what may not have been meant; notes: what was decided for the user.
    """

    name: Text
    file: Text | None = None
    bwbench_version: Text | None = None
    repeats: Whole | None = None
    seed: Whole | None = None
    plugins: tuple[Text, ...] = ()
    varying: tuple[Text, ...] = ()
    warnings: tuple[Text, ...] = ()
    notes: tuple[Text, ...] = ()


class PlanOrder(Record):
    """How the order of a plan's cells came about.

    Attributes:
        seed: that cells were shuffled with.
        blocks: ``repeats``: all first repeats run before all second ones.
        experiments: that were planned together.
    """

    seed: Whole | None = None
    blocks: Text | None = None
    experiments: tuple[Text, ...] = ()


class PlannedEntry(Record):
    """A cell of a plan; folder: its name."""

    id: Text
    slug: Text
    folder: Text


class PublishedPlan(Record):
    """What is published of plan.json."""

    experiment: PlanAbout | None = None
    order: PlanOrder | None = None


class PlanRecord(PublishedPlan, Versioned):
    """``plan.json``: what was planned; cells in the order in which they run."""

    cells: tuple[PlannedEntry, ...] = ()


class PublishedRun(Record):
    """A run that is no cell and took machine time for an experiment.

    Attributes:
        kind: ``convergence``, ``timing`` or ``tuning``.
        status: how it ended.
        wall_s: from its start to its end; of its last attempt.
        training_clock_s: None where it did not train.
        host, commit: empty where it was not recorded.
    """

    kind: Literal["convergence", "timing", "tuning"]
    id: Text
    slug: Text
    arm: Text
    status: Text
    wall_s: Number
    training_clock_s: Number | None = None
    host: Text = ""
    commit: Text = ""


class PublishedHead(Versioned):
    """First line of ``cells.jsonl.gz``.

    Attributes:
        cells: names of the cells' folders, sorted; a line follows for each.
        runs: what else took machine time.
        plan: None where there was none.
        shared: parts that several cells have in common.
    """

    experiment: FolderName
    cells: tuple[FolderName, ...]
    runs: tuple[PublishedRun, ...] = ()
    plan: PublishedPlan | None = None
    shared: tuple[Json, ...] = ()  # of JSON; checked by whoever reads what they are parts of
