"""All pictures of a result folder: which ones apply, what their files are called, and what was not drawn and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bwbench.base.registry import FIGURES
from bwbench.results.analysis.results import Results, regrouped
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.save import FORMATS, save
from bwbench.results.figures.style import PAGE_IN


@dataclass(frozen=True)
class Drawn:
    """What came of it.

    Attributes:
        paths: files written, pictures and their tables.
        skipped: one line for each picture that was not drawn: which, and why.
        notes: what stands under the pictures, once each.
    """

    paths: list[Path] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def draw_album(
    results: Sequence[Results],
    out: Path,
    names: Sequence[str] | None = None,
    width_in: float = PAGE_IN,
    at: Sequence[str] = (),
    formats: Sequence[str] = FORMATS,
) -> Drawn:
    """Draw every figure of every group into ``out``, with a folder for each experiment where there are several.

    Args:
        names: figures to draw; None draws all of ``registry.FIGURES``. Raises ConfigError for a name that is none.
        at: of figures that stand for one setting each, those whose settings are all among these, as in the files'
            names (``10Mbps``, ``latency-100-ms``); empty draws all.
        formats: of pictures, as in ``save.FORMATS``.
    """
    figures: list[AbstractFigure] = [FIGURES.load(name)() for name in names or FIGURES.names()]
    several = len({group.experiment for group in results}) > 1
    groups: dict[frozenset[str], list[Results]] = {}  # figures that compare the same share tables that are made once
    drawn = Drawn()
    for figure in figures:
        if figure.compares not in groups:
            groups[figure.compares] = regrouped(results, figure.compares)
        for group in groups[figure.compares]:
            if at and not set(group.label.split("_")) <= {"", *at}:
                continue
            folder = out / group.experiment if several else out
            _draw(figure, group, folder, width_in, formats, drawn)
    return drawn


def _draw(
    figure: AbstractFigure, part: Results, folder: Path, width_in: float, formats: Sequence[str], drawn: Drawn
) -> None:
    what = " ".join(text for text in (figure.name, f"of {part.experiment}", part.label and f"({part.label})") if text)
    why_not = figure.applies(part)
    if why_not is not None:
        drawn.skipped.append(f"{what}: {why_not}")
        return
    stem = folder / "_".join(text for text in (figure.name, part.label) if text)
    drawn.paths.extend(save(figure.draw(part, width_in), figure.table(part), part, figure.name, stem, formats))
    drawn.notes.extend(note for note in part.notes if note not in drawn.notes)
