"""``bwbench compare``: every arm against a baseline, with intervals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bwbench.base.errors import EXIT_OK
from bwbench.cli.plot import check_folder


def compare(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="results/, or one experiment in it.", show_default=False)
    ],
    baseline: Annotated[str, typer.Option(help="The arm that all others are compared with, e.g. ddp or single.")],
    by: Annotated[
        str, typer.Option(help="Dotted key of the configuration whose values stand first.")
    ] = "link.bandwidth",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> int:
    """How many times faster each arm reaches the target than the baseline, paired by seed, with 95 % intervals.

    Besides: the bandwidth at which two arms are equally fast, and the arms that no other beats in both time and
    accuracy. A target that was not reached gives bounds. Notes on what is left out go to stderr.
    """
    from bwbench.cli.compare_text import comparison_json, comparison_lines
    from bwbench.cli.output import print_json, say_unreadable
    from bwbench.records import iter_cells, readable
    from bwbench.results.analysis.cells import DONE, is_composed, state_of
    from bwbench.results.analysis.comparison import compare_cells
    from bwbench.results.analysis.composed_error import composed_errors, composed_note
    from bwbench.results.analysis.left_out import left_out_notes
    from bwbench.results.analysis.provenance import provenance_note

    check_folder(folder)
    cells, refused = readable(iter_cells(folder))
    comparison = compare_cells(cells, baseline, by)
    left_out = [note.replace("Not drawn", "Left out") for note in left_out_notes(cells)]
    done = [cell for cell in cells if state_of(cell) == DONE]
    composed = composed_note(sum(map(is_composed, done)), len(done), [one.error for one in composed_errors(done)])
    notes = [*comparison.notes, *left_out, *filter(None, (composed, provenance_note(done)))]
    if json:
        print_json({**comparison_json(comparison), "notes": [*map(str, refused), *notes]})
        return EXIT_OK
    for line in comparison_lines(comparison):
        print(line)
    sys.stdout.flush()
    say_unreadable(refused)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return EXIT_OK
