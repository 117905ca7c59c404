"""``bwbench verify``: whether records are whole, are those of their cells, and can be true."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK, ConfigError
from bwbench.cli.options import WithPublished, option
from bwbench.cli.output import print_json


def verify(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIRS", help="Results folders, experiments in them, cells, or published sets.", show_default=False
        ),
    ],
    *,
    published: WithPublished = False,
    json: Annotated[bool, option("Print JSON instead of lines.", "--json")] = False,
) -> int:
    """Check records: their form, ids and checksums, and whether times, bytes and samples can be true.

    A line for each finding, and what could not be checked on stderr; exit status 1 where something was found. Records
    of earlier versions have no checksums. Whether a link does what was asked is another thing: bwbench link verify.
    """
    from bwbench.records.own_and_published import taken
    from bwbench.results.verify import Verified
    from bwbench.results.verify import verify as verify_folder

    done: list[Verified] = []
    for folder in folders:
        if not folder.is_dir() and not folder.parent.is_dir():
            raise ConfigError(f"there is no folder {folder}; name a results folder, an experiment or a cell")
        meant = taken(folder, published=published)
        if meant.note:
            print(f"note: {meant.note}", file=sys.stderr)
        for one in verify_folder(meant):
            done.append(one)
            for finding in one.findings if not json else ():
                print(f"{one.path}: {finding.check}: {finding.text}")
    bad = sum(bool(one.findings) for one in done)
    if json:
        cells = [{**vars(one), "path": str(one.path)} for one in done]
        for cell in cells:
            cell["findings"] = [vars(finding) for finding in cell["findings"]]
            cell["unchecked"] = [vars(finding) for finding in cell["unchecked"]]
        print_json({"cells": cells, "num_cells": len(done), "num_bad": bad})
    else:
        for finding, number in Counter(finding for one in done for finding in one.unchecked).most_common():
            print(f"note: not checked in {number} cell(s): {finding.check}: {finding.text}", file=sys.stderr)
        print(f"{len(done)} cell(s): {bad} with findings, {len(done) - bad} without", file=sys.stderr)
    return EXIT_CELLS_FAILED if bad else EXIT_OK
