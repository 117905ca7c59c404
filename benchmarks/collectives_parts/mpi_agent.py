"""Takes the place of ssh for mpirun: ``mpi_agent.py MAILBOX [OPTION...] ADDRESS COMMAND...``.

Leaves a letter with address and command, and ends as the command does. Runs on any Python, without packages.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    """Write the letter whole, under a name of its own, and wait for its status."""
    mailbox, *words = sys.argv[1:]
    while words and words[0].startswith("-"):
        words.pop(0)
    letter = Path(mailbox) / f"{words[0]}-{os.getpid()}.json"
    unfinished = letter.with_suffix(".part")
    unfinished.write_text(json.dumps([words[0], " ".join(words[1:])]))
    unfinished.rename(letter)
    status = letter.with_suffix(".status")
    while not status.exists():
        time.sleep(0.1)
        if not letter.exists():  # the benchmark has ended and cleared its folder
            sys.exit(1)
    sys.exit(int(status.read_text() or 0))


if __name__ == "__main__":
    main()
