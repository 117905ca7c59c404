"""``python -m paper.program``: build the paper, or list what its claims come to."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bwbench.base.errors import EXIT_OK, BwbenchError
from paper.program.build import build_paper
from paper.program.listing import claim_lines


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 2 where claims and records do not agree, 3 where pandoc or LaTeX fail."""
    parser = argparse.ArgumentParser(prog="python -m paper.program", description=__doc__)
    parser.add_argument("--source", type=Path, default=Path("paper"), help="folder of the prose (paper)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the records (results)")
    parser.add_argument("--out", type=Path, default=Path("paper/build"), help="folder for what is built (paper/build)")
    parser.add_argument("--strict", action="store_true", help="a section without records is an error")
    parser.add_argument("--no-pdf", action="store_true", help="stop before LaTeX runs")
    parser.add_argument("--claims", action="store_true", help="print every claim, its value and what may be declared")
    options = parser.parse_args(arguments)
    try:
        if options.claims:
            print("\n".join(claim_lines(options.source, options.results)))
            return EXIT_OK
        paper = build_paper(options.source, options.results, options.out, options.strict, not options.no_pdf)
    except BwbenchError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for path in paper.paths:
        print(path)
    for line in paper.left_out:
        print(f"left out: {line}", file=sys.stderr)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
