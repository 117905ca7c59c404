"""What came of several pictures, drawn in this process and looked at together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from bwbench.results.analysis.results import Results
from bwbench.results.figures.album import FORMATS, Drawn, draw_pictures
from bwbench.results.figures.choice import pictures_of


def draw_all(
    results: Sequence[Results],
    out: Path,
    names: Sequence[str],
    at: Sequence[str] = (),
    formats: Sequence[str] = FORMATS,
) -> Drawn:
    """These figures of every group, in ``out``; ``names`` and ``at`` as in ``choice.pictures_of``."""
    return joined(draw_pictures(pictures_of(results, names, at), out, formats=formats, jobs=1))


def joined(drawn: Iterable[Drawn]) -> Drawn:
    """All files and reasons, and each note once."""
    whole = Drawn()
    for one in drawn:
        whole.paths.extend(one.paths)
        whole.skipped.extend(one.skipped)
        whole.notes.extend(note for note in one.notes if note not in whole.notes)
    return whole
