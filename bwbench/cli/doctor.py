"""``bwbench doctor``: what this machine can do, and what to change where it cannot."""

from __future__ import annotations

from typing import Annotated

import typer

from bwbench.base.errors import EXIT_OK, EXIT_UNFIT_MACHINE


def doctor(json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> int:
    """Look at this machine: rights, namespaces, netem or relay, cores, what the relay can carry here, leftovers.

    Exit status 3 where experiments cannot run.
    """
    from bwbench.cli.output import new_table, print_json, stdout
    from bwbench.network.probe.machine import examine_machine

    findings = examine_machine()
    if json_:
        print_json({"findings": [finding.to_json() for finding in findings]})
    else:
        table = new_table("check", "verdict", "finding")
        for finding in findings:
            table.add_row(finding.check, finding.verdict, finding.text)
        stdout().print(table)
    return EXIT_UNFIT_MACHINE if any(finding.verdict == "unfit" for finding in findings) else EXIT_OK
