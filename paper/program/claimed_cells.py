"""The records that claims are evaluated against, read once, and the cells among them that a claim is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bwbench.base.errors import BwbenchError, RecordError
from bwbench.base.plain_data import leaves, mapping_at
from bwbench.base.units import BANDWIDTH, DURATION, MEMORY, SAMPLES
from bwbench.network.link import Link
from bwbench.records import CellFolder, iter_cells
from bwbench.results.analysis.cells import DONE, concerns_no_link, is_reference, state_of, value_at
from bwbench.results.analysis.host_bound import OwnSteps
from bwbench.results.analysis.spent import Spent, spent

_NONE_OR_SOME = ("link.overrides", "link.trace", "dilation")
_FREE_TO_DIFFER = ("seed", "limit.", "optimizer.", "plugins", "link.seed")  # the repeat, and what is tuned for each arm


@dataclass(frozen=True)
class Records:
    """A results folder, and others beside it. Where it does not exist there are no records.

    Attributes:
        beside: records of single experiments that are kept elsewhere. What is said of ``all`` experiments leaves
            them out.
    """

    root: Path
    beside: tuple[Path, ...] = ()

    @cached_property
    def folders(self) -> list[CellFolder]:
        """Every cell, done or not."""
        return [*self._own, *(folder for path in self.beside if path.is_dir() for folder in iter_cells(path))]

    @cached_property
    def _own(self) -> list[CellFolder]:
        return list(iter_cells(self.root)) if self.root.is_dir() else []

    @cached_property
    def experiments(self) -> frozenset[str]:
        """Names of the experiments with at least one cell that is done."""
        return frozenset(str(f.cell.experiment) for f in self.folders if state_of(f) == DONE)

    def done(self, experiment: str) -> list[CellFolder]:
        """The done cells of an experiment; of all for ``all``."""
        wanted: Iterable[CellFolder] = self._own if experiment == "all" else self.of(experiment)
        return [folder for folder in wanted if state_of(folder) == DONE]

    def of(self, experiment: str) -> list[CellFolder]:
        """All cells of an experiment."""
        return self._by_experiment.get(experiment, [])

    @cached_property
    def _by_experiment(self) -> dict[str, list[CellFolder]]:
        found: dict[str, list[CellFolder]] = {}
        for folder in self.folders:
            found.setdefault(str(folder.cell.experiment), []).append(folder)
        return found

    def spent_on(self, experiment: str) -> Spent | None:
        """What an experiment has cost; all of them for ``all``; None where nothing is known."""
        found, total = self._spent
        return total if experiment == "all" else next((one for one in found if one.experiment == experiment), None)

    def is_host_bound(self, folder: CellFolder) -> bool:
        """By the cells of its own experiment in which nobody communicates; else by those of all."""
        return self.own_steps[str(folder.cell.experiment)].row(folder)["host_bound"] is True

    @cached_property
    def own_steps(self) -> dict[str, OwnSteps]:
        """Of each experiment what steps take without communication."""
        every = OwnSteps.of(self.folders).free_s
        names = {str(folder.cell.experiment) for folder in self.folders}
        return {name: OwnSteps({**every, **OwnSteps.of(self.of(name)).free_s}) for name in names}

    @cached_property
    def _spent(self) -> tuple[list[Spent], Spent]:
        try:
            return spent(self.folders)[0], spent(self._own)[1]
        except RecordError:
            return [], Spent("all")


class MissingRecordsError(BwbenchError):
    """A claim's cells are not there, or not done: they have to be made."""


class AmbiguousClaimError(BwbenchError):
    """A claim's filters leave cells that differ in more than their seeds."""


def cells_of(
    folders: Iterable[CellFolder], claim: str, experiment: str, arm: str, where: Mapping[str, Any]
) -> list[CellFolder]:
    """The done cells of an arm with these settings, all alike but for the seed.

    Raises MissingRecordsError or AmbiguousClaimError, which name the claim and what to do.
    """
    of_arm = [folder for folder in folders if folder.cell.experiment == experiment and folder.cell.arm == arm]
    found = [folder for folder in of_arm if matches(folder, where)]
    done = [folder for folder in found if state_of(folder) == DONE]
    if not done:
        raise MissingRecordsError(_missing(claim, experiment, arm, where, of_arm, found))
    _check_alike(claim, done)
    return done


def matches(folder: CellFolder, where: Mapping[str, Any]) -> bool:
    """Whether a cell has these settings. What no link and no number of nodes concerns fits any of them.

    ``link.preset`` takes the name of a preset, nodes that differ set aside; ``link.overrides`` says whether there are
    such nodes, ``link.trace`` whether the link follows a recording, ``dilation`` whether time runs slower: ``none`` or
    ``some``.
    """
    config = folder.cell.config
    alone, linkless = is_reference(folder.cell), concerns_no_link(folder.cell)
    for key, wanted in where.items():
        if (linkless and key.startswith("link.")) or (alone and key == "nodes"):
            continue
        if key == "link.preset":
            if not _is_preset(mapping_at(config, "link"), str(wanted)):
                return False
        elif key in _NONE_OR_SOME and wanted in ("none", "some"):
            if bool(value_at(config, key)) != (wanted == "some"):
                return False
        elif _comparable(value_at(config, key)) != _comparable(wanted):
            return False
    return True


def how_to_make(experiment: str) -> str:
    """The command that makes an experiment's records."""
    return f"make them with `make paper-results`, or alone with `bwbench run experiments/{experiment}.yaml`"


def _missing(
    claim: str, experiment: str, arm: str, where: Mapping[str, Any], of_arm: Sequence[CellFolder], found: Sequence[Any]
) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in where.items())
    what = f"arm {arm}" + (f" with {settings}" if settings else "")
    if found:
        states = sorted({state_of(folder) for folder in found})
        why = f"its {len(found)} cells are {' or '.join(states)}"
    elif of_arm:
        why = f"none of the {len(of_arm)} cells of that arm has these settings"
    else:
        why = "there is no cell of that arm"
    return f"claim {claim!r}: experiment {experiment}, {what}: {why}; {how_to_make(experiment)}, or mend the claim"


def _check_alike(claim: str, folders: Sequence[CellFolder]) -> None:
    seen: dict[str, set[str]] = {}
    for folder in folders:
        for key, value in leaves(folder.cell.config):
            if not any(key == free or key.startswith(free) for free in _FREE_TO_DIFFER):
                seen.setdefault(key, set()).add(str(value))
    differing = {key: values for key, values in seen.items() if len(values) > 1}
    if differing:
        shown = "; ".join(f"{key}: {', '.join(sorted(values))}" for key, values in sorted(differing.items())[:4])
        raise AmbiguousClaimError(f"claim {claim!r} means several settings; name one of each under `where:` ({shown})")


def _is_preset(link: Mapping[str, Any], name: str) -> bool:
    try:
        return Link.model_validate({**link, "overrides": {}}) == Link.model_validate({"preset": name})
    except ValidationError:
        return False


def _comparable(value: Any) -> Any:
    """Quantities by size, so that 10 Mbit/s is 10000 kbit/s; numbers as numbers; anything else by its text."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return float(value)
    for dimension in (BANDWIDTH, DURATION, MEMORY, SAMPLES):
        try:
            return dimension.name, dimension.parse(value)
        except ValueError:
            continue
    return str(value)
