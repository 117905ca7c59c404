"""``bwbench link apply``: shape one real interface of this machine, for a time."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bwbench.base.errors import EXIT_OK, ConfigError
from bwbench.cli.link.options import LinkOptions, takes_link

if TYPE_CHECKING:
    from bwbench.network.interface.shaping import AppliedRun
    from bwbench.network.link import Link

DEFAULT_S = 600.0
LONGEST_S = 86_400.0

# A line a paragraph: typer keeps the line breaks of longer ones.
HELP = "\n\n".join(
    (
        "Shape what one real interface of this machine exchanges with the peers; everything else goes on as before.",
        "It is taken back after --for (10 min) by a process that is started before anything is changed and survives "
        "this one and the session; earlier by 'bwbench link clear'. With --hold it lasts until Ctrl-C, and ends when "
        "this process does, however that happens.",
        "The interface adds the whole latency, jitter and loss in each direction: apply it on one side, or ask for "
        "half on both. Only interfaces with the kernel's own qdiscs are touched, and never the connection by which you "
        "control this machine.",
        "With --hosts FILE the hosts of an inventory are shaped as one link among each other, each end with half of "
        "the latency, and ssh is left out.",
        "Needs root, and for latency, jitter or loss a kernel with netem. --dry-run prints the tc commands instead, "
        "for everybody.",
    )
)


@takes_link
def apply(
    options: LinkOptions,
    dev: Annotated[str | None, typer.Option(metavar="IFACE", help="The interface: wlan0.")] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="IP address (or network) of another machine. Repeatable."),
    ] = None,
    hosts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Instead: these hosts among each other, by ssh, until Ctrl-C."),
    ] = None,
    port: Annotated[
        list[str] | None,
        typer.Option(metavar="N[-M]", help="Only TCP and UDP with these ports at either end. Repeatable."),
    ] = None,
    except_port: Annotated[
        list[str] | None,
        typer.Option(metavar="N[-M]", help="Not TCP and UDP with these ports, such as 22. Repeatable."),
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Take it back after this time: '10 min'.")
    ] = None,
    hold: Annotated[bool, typer.Option("--hold", help="Stay, and take it back when this process ends.")] = False,
    only_up: Annotated[bool, typer.Option("--only-up", help="Leave alone what comes in.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the tc commands and change nothing.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """Shape an interface; ``HELP`` is what users read."""
    from bwbench.cli.link.interrupts import DeferredInterrupts
    from bwbench.cli.output import print_json, stderr
    from bwbench.network.interface.kernel import Kernel, require_rights
    from bwbench.network.interface.remove import clear
    from bwbench.network.interface.shaping import applied, prepare
    from bwbench.network.interface.shaping import hold as keep
    from bwbench.network.interface.shaping_request import PeerTraffic
    from bwbench.network.interface.steps import commands

    if hosts is not None:
        if dev or peer or port or except_port or only_up or dry_run:
            raise ConfigError("--hosts: the hosts' file says all of it; of the other options only those of the link")
        from bwbench.cli.link.on_hosts import apply_to_hosts

        return apply_to_hosts(hosts, options, _duration(for_, hold=True), json_)
    if dev is None:
        raise ConfigError("which interface? Give --dev wlan0, or --hosts FILE for those of other machines")
    duration_s = _duration(for_, hold)
    traffic = PeerTraffic.parse(peer or [], port or [], except_port or [])
    link = options.link(1)
    if not dry_run:
        require_rights(typed())
    with DeferredInterrupts() as interrupts, Kernel() as kernel:
        prepared = prepare(kernel, dev, traffic, link, both=not only_up)
        for note in prepared.notes:
            stderr().print(f"note: {note}")
        if dry_run:
            lines = commands(prepared.steps, dev)
            print_json({"commands": lines}) if json_ else print(*lines, sep="\n")
            return EXIT_OK
        with applied(kernel, prepared, duration_s, held=hold) as run:
            if interrupts.asked and not hold:
                clear(kernel, dev)
                raise KeyboardInterrupt
            print_json(_as_json(run, duration_s, hold)) if json_ else _print(run, duration_s, hold)
            sys.stdout.flush()
            if hold:
                keep(kernel, run, duration_s, interrupts.wait)
        if hold:
            stderr().print(f"{dev} is as it was")
    return EXIT_OK


def _duration(text: str | None, hold: bool) -> float:
    from bwbench.base.units import DURATION

    if text is None:
        return LONGEST_S if hold else DEFAULT_S
    try:
        duration_s = DURATION.parse(text)
    except ValueError as error:
        raise ConfigError(f"--for: {error}") from None
    if not 1 <= duration_s <= LONGEST_S:
        raise ConfigError(f"--for: {text!r} is out of range: 1 s to {LONGEST_S / 3600:g} h")
    return duration_s


def typed() -> str:
    """This command as it can be typed again, by an absolute path: sudo looks for programs elsewhere."""
    program, *words = sys.argv
    start = [sys.executable, "-m", "bwbench.cli.main"] if program.endswith(".py") else [str(Path(program).absolute())]
    return shlex.join([*start, *words])


def _print(run: AppliedRun, duration_s: float, hold: bool) -> None:
    from bwbench.base.units import DURATION

    prepared = run.prepared
    dev = prepared.device.name
    print(f"interface  {dev} (run {prepared.names.run})")
    print(f"traffic    {prepared.traffic}")
    print(f"going out  {_describe(prepared.link, up=True)}")
    print(f"coming in  {_describe(prepared.link, up=False) if prepared.both else 'as before'}")
    print("qdiscs     there as asked: the kernel was read back")
    if hold:
        print(
            f"until      Ctrl-C, at most {DURATION.format(duration_s)}; taken back by {run.armed_by} if this is killed"
        )
    else:
        print(f"until      {DURATION.format(duration_s)} from now, by {run.armed_by}")
        print(f"earlier    bwbench link clear --dev {dev}")


def _describe(link: Link, up: bool) -> str:
    """What one direction gets: ``10 Mbit/s, latency 5 ms, queue 64 kB``."""
    from bwbench.base.units import BANDWIDTH, DURATION, MEMORY

    here = link.base
    words = [BANDWIDTH.format(here.up_bps if up else here.down_bps)]
    if here.latency_s:
        words.append(f"latency {DURATION.format(here.latency_s)}")
    if here.jitter_s:
        words.append(f"jitter {DURATION.format(here.jitter_s)}")
    if here.loss:
        words.append(f"loss {here.loss:.3g}" + (f" in bursts of {link.loss_burst:g}" if link.loss_burst else ""))
    queue_bytes = here.up_queue_bytes if up else here.down_queue_bytes
    queue = f"{here.queue_packets} packets" if here.queue_packets else MEMORY.format(queue_bytes)
    return ", ".join([*words, f"queue {queue}"])


def _as_json(run: AppliedRun, duration_s: float, hold: bool) -> dict[str, object]:
    from bwbench.network.interface.steps import commands

    prepared = run.prepared
    return {
        "dev": prepared.device.name,
        "run": prepared.names.run,
        "link": prepared.link.model_dump(mode="json", by_alias=True),
        "peers": [str(peer) for peer in prepared.traffic.peers],
        "ports": [str(ports) for ports in prepared.traffic.ports],
        "except_ports": [str(ports) for ports in prepared.traffic.spared],
        "directions": ["up", "down"] if prepared.both else ["up"],
        "duration_s": duration_s,
        "held": hold,
        "armed_by": run.armed_by,
        "commands": commands(prepared.steps, prepared.device.name),
    }
