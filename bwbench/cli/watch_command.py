"""The command ``watch``: the report of a sweep that runs, in a browser."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

from bwbench.base.errors import EXIT_OK
from bwbench.cli.options import ResultsFolder, WithPublished, option, take

PORT = 8765
LOWEST_PRIORITY = 19  # cells are timed beside it


def watch(
    folder: ResultsFolder,
    *,
    port: Annotated[
        int, option("Port on this machine's loopback; 0 takes any that is free.", metavar="PORT", min=0, max=65535)
    ] = PORT,
    published: WithPublished = False,
) -> int:
    """Show the report of a running sweep in a browser: cells appear as they finish, curves as they train.

    Prints its address, and serves it until Ctrl-C: on loopback, to be read only. From another machine look at it with
    `ssh -L 8765:127.0.0.1:8765 HOST`. It survives a sweep that is killed, a cell that fails, a record that is broken.
    """
    found = take(folder, published=published)
    from bwbench.results.page.watch import open_server  # pandas takes a second to import

    with open_server(folder, port, published=found.published) as server:
        os.nice(LOWEST_PRIORITY)
        print(server.url, flush=True)
        print("Ctrl-C ends it", file=sys.stderr, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return EXIT_OK
