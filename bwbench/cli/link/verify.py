"""``bwbench link verify``: make a link, measure what it does, print the difference."""

from __future__ import annotations

from typing import Annotated

import typer

from bwbench.base.errors import EXIT_OK, EXIT_UNFIT_MACHINE, ConfigError
from bwbench.cli.link.options import LinkOptions, takes_link


@takes_link
def verify(
    options: LinkOptions,
    nodes: Annotated[int, typer.Option(help="How many nodes; each one sends to its neighbour.")] = 4,
    tolerance: Annotated[float, typer.Option(help="Relative error of goodput and round trip that is fine.")] = 0.05,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Make a link in namespaces, measure it with all nodes sending, and print asked, applied, achieved and error.

    A link that changes over time is measured at its mean. Exit status 3 where the link does not do what was asked.
    """
    from bwbench.cli.link.measured_table import measured_table
    from bwbench.cli.output import print_json, stderr, stdout
    from bwbench.network.network import open_network
    from bwbench.network.probe.verification import verify as measure

    if nodes < 2:
        raise ConfigError(f"--nodes {nodes}: a link has two ends; give 2 or more")
    if not 0 < tolerance < 1:
        raise ConfigError(f"--tolerance: {tolerance} is out of range: more than 0 and less than 1, such as 0.05")
    link = options.link(nodes)
    with open_network(link, nodes) as network:
        stderr().print(f"measuring {link.describe()} between {nodes} node(s) on {network.backend} …")
        measured = measure(network, link, nodes, tolerance)
        health = network.health()
    if json_:
        print_json(
            {
                **measured.to_json(),
                "backend_reason": network.backend_reason,
                "asked": link.model_dump(mode="json", by_alias=True),
                "applied": network.applied,
                "emulator": health,
            }
        )
    else:
        out = stdout()
        out.print(f"link      {link.describe()}, {nodes} node(s)")
        out.print(f"back end  {network.backend}: {network.backend_reason}")
        out.print(measured_table(network.applied, measured))
        out.print(f"verdict   {measured.verdict} (tolerance {tolerance:.3g})")
    for reason in measured.reasons:
        stderr().print(f"out of tolerance: {reason}")
    if measured.verdict != "ok":
        stderr().print(
            "the machine may be too busy or too slow for this link: look at 'bwbench doctor', close other programs, or "
            "ask for less bandwidth"
        )
    return EXIT_OK if measured.verdict == "ok" else EXIT_UNFIT_MACHINE
