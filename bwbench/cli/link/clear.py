"""``bwbench link clear``: take off what ``link apply`` has put on an interface."""

from __future__ import annotations

from typing import Annotated

import typer

from bwbench.errors import EXIT_OK, EXIT_UNFIT_MACHINE


def clear(
    dev: Annotated[str, typer.Option(metavar="IFACE", help="The interface: wlan0.")],
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """Take off what 'bwbench link apply' has put on an interface, and nothing else; there may be nothing.

    Exit status 3 where its qdiscs are not what they were before, because somebody else has changed them.
    """
    from bwbench.cli.link.apply import typed
    from bwbench.cli.output import print_json, stderr
    from bwbench.network.interface.clear import clear as take_off
    from bwbench.network.interface.kernel import Kernel
    from bwbench.network.interface.rights import require_rights

    require_rights(typed())
    with Kernel() as kernel:
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
