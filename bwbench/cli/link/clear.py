"""``bwbench link clear``: take off what ``link apply`` has put on an interface."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bwbench.base.errors import EXIT_OK, EXIT_UNFIT_MACHINE, ConfigError


def clear(
    dev: Annotated[str | None, typer.Option(metavar="IFACE", help="The interface: wlan0.")] = None,
    hosts: Annotated[Path | None, typer.Option(metavar="FILE", help="On all these hosts instead, by ssh.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """Take off what 'bwbench link apply' has put on an interface, and nothing else; there may be nothing.

    Exit status 3 where its qdiscs are not what they were before, because somebody else has changed them.
    """
    from bwbench.cli.link.apply import typed
    from bwbench.cli.link.interrupts import DeferredInterrupts
    from bwbench.cli.output import print_json, stderr
    from bwbench.network.interface.kernel import Kernel, require_rights
    from bwbench.network.interface.remove import clear as take_off

    if (dev is None) == (hosts is None):
        raise ConfigError("which interface? Give --dev wlan0, or --hosts FILE for all that is shaped on other machines")
    if hosts is not None:
        from bwbench.cli.link.on_hosts import clear_hosts

        return clear_hosts(hosts, json_)
    assert dev is not None
    require_rights(typed())
    with DeferredInterrupts(), Kernel() as kernel:
        cleared = take_off(kernel, dev)
    if json_:
        print_json({"dev": dev, "run": cleared.run, "removed": list(cleared.removed), "difference": cleared.difference})
    elif not cleared.removed:
        print(f"nothing of bwbench on {dev}")
    else:
        for what in cleared.removed:
            print(f"removed {what}")
    if cleared.difference is not None:
        stderr().print(cleared.difference)
    return EXIT_OK if cleared.difference is None else EXIT_UNFIT_MACHINE
