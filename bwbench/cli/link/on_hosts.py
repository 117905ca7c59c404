"""``--hosts`` of ``bwbench link apply``, ``clear`` and ``show``: the same on the machines of an inventory, by ssh."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from bwbench.base.errors import EXIT_OK, EXIT_UNFIT_MACHINE, ConfigError
from bwbench.cli.link.link_options import LinkOptions
from bwbench.cli.link.read_link import read_link
from bwbench.cli.output import print_json, stderr
from bwbench.experiment.config.hosts import Host, inventory
from bwbench.network.interface.shaping_request import check_link
from bwbench.running.launch.ssh.host_shaping import ShaperAnswer, host_link
from bwbench.running.launch.ssh.hosts_link import ask_all, hold_link

FEWEST = 2


def apply_to_hosts(file: Path, options: LinkOptions, duration_s: float, *, as_json: bool) -> int:
    """Shape the hosts among each other until Ctrl-C, at most ``duration_s``."""
    hosts = inventory(file)
    if len(hosts) < FEWEST:
        raise ConfigError(f"--hosts {file}: a link needs two hosts at least")
    link = read_link(options, len(hosts))
    # Whether the hosts' kernels have netem is for each of them to say.
    check_link(link.model_copy(update={"overrides": {}}), netem=True)
    for rank in range(len(hosts)):
        check_link(host_link(link, rank), netem=True)

    def say(applied: dict[Host, ShaperAnswer]) -> None:
        if as_json:
            print_json([{"host": host.name, **answer} for host, answer in applied.items()])
        else:
            for host, answer in applied.items():
                print(f"{host.name}: {answer['interface']}: {answer['applied']}")
            print("until Ctrl-C; taken back within 15 s if this is killed or the connection breaks")
        sys.stdout.flush()

    ends = hold_link(hosts, link, duration_s, say)
    changed = []
    for host, answer in ends.items():
        why = str(answer.get("problem") or "no answer")
        if "restored" in answer:
            why = f"{answer['now']} instead of {answer['before']}"
        if not answer.get("restored"):
            changed.append(f"{host.name} ({why})")
    if changed:
        stderr().print(
            f"not seen to be as before: {', '.join(changed)}; what is armed there takes the link back within 15 s, "
            f"and 'bwbench link show --hosts {file}' looks"
        )
        return EXIT_UNFIT_MACHINE
    stderr().print("all interfaces are as they were" if ends else "nothing was changed")
    return EXIT_OK


def ask_hosts(file: Path, operation: Literal["show", "clear"], *, as_json: bool) -> int:
    """What bwbench shapes on each host now, or that it is taken off."""
    answers = ask_all(inventory(file), operation)
    if as_json:
        print_json([{"host": host.name, **answer} for host, answer in answers.items()])
    else:
        for host, answer in answers.items():
            for line in _lines(answer):
                print(f"{host.name}: {line}")
    return EXIT_UNFIT_MACHINE if any(answer.get("problem") for answer in answers.values()) else EXIT_OK


def _lines(answer: ShaperAnswer) -> list[str]:
    shaped = [
        f"{found['interface']}: {found['applied']} (run {found['run']}, for another {found['left_s']:.0f} s)"
        for found in answer.get("shaped", ())
    ]
    removed = [f"removed {what}" for what in answer.get("removed", ())]
    problem = [str(answer["problem"])] if answer.get("problem") else []
    return [*shaped, *removed, *problem] or ["nothing of bwbench"]
