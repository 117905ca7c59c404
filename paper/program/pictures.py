"""The figures and tables that prose asks for, from the same records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bwbench.base.registry import FIGURES
from bwbench.results.analysis.cell_arrival import at_target
from bwbench.results.analysis.results import Results, load_results, regrouped, results_of
from bwbench.results.figures.album import save
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.style import COLUMN_IN, PAGE_IN
from bwbench.results.section.content import Block, Table
from bwbench.results.section.threats import link_table
from bwbench.results.section.time_and_accuracy import accuracy_blocks, baseline_of, speedup_blocks, time_blocks
from paper.program.claimed_cells import Records
from paper.program.comparing import metric_of
from paper.program.spoken import name_of


@dataclass
class Pictures:
    """Draws each picture once, into ``folder``. What must be said of its records stands in ``notes``, not below it.

    Attributes:
        names: what prose calls an arm, and pictures as well; tables keep its label.
        skipped: why a picture that prose asks for was not drawn.
    """

    records: Records
    folder: Path
    names: Mapping[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    _drawn: dict[tuple[str, str, str, bool, float | None], str | None] = field(default_factory=dict)
    _results: dict[str, list[Results]] = field(default_factory=dict)
    _notes: dict[str, Sequence[str]] = field(default_factory=dict)

    def draw(
        self, name: str, experiment: str, group: str = "", *, wide: bool = False, target: float | None = None
    ) -> str | None:
        """The stem of the picture's files below ``folder``; None where there is nothing to draw.

        Args:
            group: part of the label of the group of cells; the first group that the figure applies to without it.
            target: of the metric of the cells' target, in place of their own.
        """
        key = (name, experiment, group, wide, target)
        if key not in self._drawn:
            self._drawn[key] = self._draw(name, experiment, group, wide=wide, target=target)
        return self._drawn[key]

    def notes(self) -> Mapping[tuple[str, ...], Sequence[str]]:
        """What must be said of the records behind the pictures drawn so far, by the stems of all that it is said of."""
        stems_of: dict[str, list[str]] = {}
        for stem, notes in self._notes.items():
            for note in notes:
                stems_of.setdefault(note, []).append(stem)
        found: dict[tuple[str, ...], list[str]] = {}
        for note, stems in stems_of.items():
            found.setdefault(tuple(stems), []).append(note)
        return found

    def tables(
        self, kind: str, experiment: str, group: str = "", baseline: str | None = None, target: float | None = None
    ) -> Iterator[Table]:
        """The tables of an experiment: ``times``, ``speedups``, ``accuracy``; or ``links``, one of ``all`` of them."""
        if kind == "links":
            self._groups(experiment)
            known = {name: [folder for one in groups for folder in one.done] for name, groups in self._results.items()}
            yield from link_table({name: done for name, done in known.items() if experiment in ("all", name)})
            return
        groups = self._told(one for one in self._at(target, self._groups(experiment)) if group in one.label)
        against = baseline or baseline_of(groups)
        for one in groups:
            blocks: Iterator[Block]
            key = f"{experiment} {one.label}".strip()
            if kind == "times":
                blocks = time_blocks(one, key)
            elif kind == "speedups":
                blocks = speedup_blocks(one, key, against) if against else iter(())
            else:
                blocks = accuracy_blocks(one, key, against)
            yield from (block for block in blocks if isinstance(block, Table))

    def _draw(self, name: str, experiment: str, group: str, *, wide: bool, target: float | None) -> str | None:
        if name not in FIGURES:
            self.skipped.append(f"figure {name}: there is none of that name; `bwbench list figures` has them")
            return None
        figure: AbstractFigure = FIGURES.load(name)()
        why = f"no records of {experiment}"
        for unnamed in regrouped(self._at(target, self._groups(experiment)), figure.compares):
            if group not in unnamed.label:
                continue
            (one,) = self._told([unnamed])
            one = replace(one, called=self._called(one))
            reason = figure.why_not(one)
            if reason is None:
                asked = "" if target is None else f"to-{target:g}"
                stem = "_".join(part for part in (experiment, name, one.label, asked) if part)
                width = PAGE_IN if wide else COLUMN_IN
                drawn = figure.draw(one, width, one.notes)
                save(drawn, figure.table(one), one, name, self.folder / stem)
                self._notes[stem] = one.notes
                return stem
            why = reason
        self.skipped.append(f"figure {name} of {experiment} {group}".rstrip() + f": {why}")
        return None

    def _told(self, groups: Iterable[Results]) -> list[Results]:
        """The groups with what all records tell of steps without communication: prose has their marks as well."""
        own = self.records.own_steps
        return [replace(one, own=own.get(one.experiment, one.own)) for one in groups]

    def _called(self, one: Results) -> dict[str, str]:
        """What prose calls the arms, without an article; of two that it calls alike the one with fewer options."""
        called = dict(one.labels)
        for arm in sorted(called, key=lambda arm: (len(arm), arm)):
            spoken = _without_article(name_of(arm, one.experiment, self.names))
            if spoken != arm and spoken not in called.values():
                called[arm] = spoken
        return called

    @staticmethod
    def _at(target: float | None, groups: Sequence[Results]) -> Sequence[Results]:
        """The groups at another target of their metric."""
        if target is None or not groups:
            return groups
        cells = {folder.path: folder for one in groups for folder in one.folders}  # one node alone is in several groups
        return results_of(at_target(cells.values(), (metric_of(list(cells.values())), target)), groups[0].reader)

    def _groups(self, experiment: str) -> list[Results]:
        if not self._results and self.records.root.is_dir():
            for one in load_results(self.records.root):
                self._results.setdefault(one.experiment, []).append(one)
        if experiment in self._results:
            return self._results[experiment]
        beside = (one for path in self.records.beside if path.is_dir() for one in load_results(path))
        return [one for one in beside if one.experiment == experiment]


def _without_article(name: str) -> str:
    return name.removeprefix("the ").removeprefix("a ")
