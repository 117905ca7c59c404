"""Which pictures are drawn of some cells: all of them, or the few that answer what an experiment asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.base.registry import FIGURES
from bwbench.results.analysis.results import Results, by_experiment, regrouped
from bwbench.results.figures.base import AbstractFigure


@dataclass(frozen=True)
class Picture:
    """One picture that may be drawn.

    Attributes:
        figure: its name in the registry.
        candidates: groups of cells of one experiment; the first one is drawn that the figure applies to.
    """

    figure: str
    candidates: tuple[Results, ...]

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return self.candidates[0].experiment


def first_figures() -> list[str]:
    """Names of the figures that answer first; those that span settings stand before those that show one of them."""
    classes: dict[str, type[AbstractFigure]] = {name: FIGURES.load(name) for name in FIGURES.names()}
    first = [name for name, figure in classes.items() if not figure.in_detail]
    return sorted(first, key=lambda name: not classes[name].compares)


def pictures_of(
    results: Sequence[Results], names: Sequence[str] | None = None, at: Sequence[str] = (), *, all_settings: bool = True
) -> list[Picture]:
    """The pictures of ``results``, experiment by experiment.

    Args:
        names: of figures; None takes all of ``registry.FIGURES``. Raises ConfigError for a name that is none.
        at: of figures that stand for one setting each, those whose settings are all among these, as in the files'
            names (``10Mbps``, ``latency-100-ms``); empty takes all.
        all_settings: a picture for each setting. Else one that stands for all: where most cells are done, and of
            settings that are alike in that the one in the middle.
    """
    found = []
    for groups in by_experiment(results).values():
        alike: dict[frozenset[str], list[Results]] = {}  # figures that compare the same share tables made once
        for name in FIGURES.names() if names is None else names:
            compares = FIGURES.load(name).compares
            if compares not in alike:
                alike[compares] = regrouped(groups, compares)
            shown = [one for one in alike[compares] if not at or set(one.label.split("_")) <= {"", *at}]
            if all_settings:
                found += [Picture(name, (one,)) for one in shown]
            elif shown:
                found.append(Picture(name, tuple(_most_telling_first(shown))))
    return found


def _most_telling_first(groups: Sequence[Results]) -> list[Results]:
    middle = (len(groups) - 1) / 2
    places = sorted(range(len(groups)), key=lambda place: (-len(groups[place].done), abs(place - middle), place))
    return [groups[place] for place in places]
