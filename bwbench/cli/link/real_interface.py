"""``bwbench link apply`` and ``clear``: a real interface of this machine, or by ssh those of others (``--hosts``)."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Literal

from bwbench.base.errors import EXIT_OK, EXIT_UNFIT_MACHINE, ConfigError, UnfitMachineError
from bwbench.base.start_module import module_command
from bwbench.base.units import BANDWIDTH, DURATION, MEMORY
from bwbench.cli.link.link_options import LinkOptions, Shaping
from bwbench.cli.link.read_link import as_duration, read_link
from bwbench.cli.output import print_json, stderr
from bwbench.experiment.config.hosts import Host, inventory
from bwbench.network.interface.kernel import Kernel
from bwbench.network.interface.remove import clear
from bwbench.network.interface.shaping import AppliedRun, applied, hold, prepare
from bwbench.network.interface.shaping_request import PeerTraffic, check_link
from bwbench.network.interface.steps import commands
from bwbench.network.link import Link
from bwbench.network.namespaces.isolation import CAP_NET_ADMIN, has_capability
from bwbench.running.launch.ssh.host_shaping import ShaperAnswer, host_link
from bwbench.running.launch.ssh.hosts_link import ask_all, hold_link

DEFAULT_S = 600.0
LONGEST_S = 86_400.0
_POLL_S = 0.05


def apply_link(shaping: Shaping, options: LinkOptions) -> int:
    """Shape an interface, or hosts among each other."""
    dev = shaping.dev
    if shaping.hosts is not None:
        if any((dev, shaping.peer, shaping.port, shaping.except_port, shaping.only_up, shaping.dry_run)):
            raise ConfigError("--hosts: the hosts' file says all of it; of the other options only those of the link")
        return apply_to_hosts(shaping.hosts, options, _duration_s(shaping), as_json=shaping.json_)
    if dev is None:
        raise ConfigError("which interface? Give --dev wlan0, or --hosts FILE for those of other machines")
    duration_s = _duration_s(shaping)
    traffic = PeerTraffic.parse(shaping.peer or [], shaping.port or [], shaping.except_port or [])
    link = of_a_kernel(read_link(options, 1))
    if not shaping.dry_run:
        _require_rights()
    with DeferredInterrupts() as interrupts, Kernel() as kernel:
        prepared = prepare(kernel, dev, traffic, link, both=not shaping.only_up)
        for note in prepared.notes:
            stderr().print(f"note: {note}")
        if shaping.dry_run:
            lines = commands(prepared.steps, dev)
            print_json({"commands": lines}) if shaping.json_ else print(*lines, sep="\n")
            return EXIT_OK
        with applied(kernel, prepared, duration_s, held=shaping.hold) as run:
            if interrupts.asked and not shaping.hold:
                clear(kernel, dev)
                raise KeyboardInterrupt
            print_json(_as_json(run, duration_s, shaping)) if shaping.json_ else _print(run, duration_s, shaping)
            sys.stdout.flush()
            if shaping.hold:
                hold(kernel, run, duration_s, interrupts.wait)
        if shaping.hold:
            stderr().print(f"{dev} is as it was")
    return EXIT_OK


def of_a_kernel(link: Link) -> Link:
    """``link`` with the kind of jitter that a kernel can do, which is said, unless the other was asked for by name."""
    if not link.wanders or "jitter_kind" in link.model_fields_set:
        return link
    stderr().print("note: the jitter is independent: netem draws every frame's delay anew, and cannot let it wander")
    return link.model_copy(update={"jitter_kind": "independent"})


def _duration_s(shaping: Shaping) -> float:
    """Until it is taken back; raises ConfigError where that is no duration, or out of range."""
    if shaping.for_ is None:
        return LONGEST_S if shaping.hold or shaping.hosts is not None else DEFAULT_S
    duration_s = as_duration("--for", shaping.for_)
    if not 1 <= duration_s <= LONGEST_S:
        raise ConfigError(f"--for: {shaping.for_!r} is out of range: 1 s to {LONGEST_S / 3600:g} h")
    return duration_s


def _require_rights() -> None:
    """Raise UnfitMachineError with the line to type where this process may not change interfaces."""
    if has_capability(CAP_NET_ADMIN):
        return
    program, *words = sys.argv  # by an absolute path: sudo looks for programs elsewhere
    start = module_command("bwbench.cli.main") if program.endswith(".py") else [str(Path(program).absolute())]
    command = shlex.join([*start, *words])
    raise UnfitMachineError(
        f"changing a real interface needs root (CAP_NET_ADMIN), and nothing was changed; run: sudo {command}"
    )


def _print(run: AppliedRun, duration_s: float, shaping: Shaping) -> None:
    prepared = run.prepared
    dev = prepared.device.name
    print(f"interface  {dev} (run {prepared.names.run})")
    print(f"traffic    {prepared.traffic}")
    print(f"going out  {_describe(prepared.link, up=True)}")
    print(f"coming in  {_describe(prepared.link, up=False) if prepared.both else 'as before'}")
    print("qdiscs     there as asked: the kernel was read back")
    if shaping.hold:
        print(
            f"until      Ctrl-C, at most {DURATION.format(duration_s)}; taken back by {run.armed_by} if this is killed"
        )
    else:
        print(f"until      {DURATION.format(duration_s)} from now, by {run.armed_by}")
        print(f"earlier    bwbench link clear --dev {dev}")


def _describe(link: Link, *, up: bool) -> str:
    """What one direction gets: ``10 Mbit/s, latency 5 ms, queue 64 kB``."""
    here = link.base
    words = [BANDWIDTH.format(here.up_bps if up else here.down_bps)]
    delays = (("latency", here.latency_s), ("jitter", here.jitter_s))
    words += [f"{name} {DURATION.format(value_s)}" for name, value_s in delays if value_s]
    if here.loss:
        words.append(
            f"loss {100 * here.loss:.3g} %" + (f" in bursts of {link.loss_burst:g}" if link.loss_burst else "")
        )
    queue_bytes = here.up_queue_bytes if up else here.down_queue_bytes
    queue = f"{here.queue_packets} packets" if here.queue_packets else MEMORY.format(queue_bytes)
    return ", ".join([*words, f"queue {queue}"])


def _as_json(run: AppliedRun, duration_s: float, shaping: Shaping) -> dict[str, object]:
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
        "held": shaping.hold,
        "armed_by": run.armed_by,
        "commands": commands(prepared.steps, prepared.device.name),
    }


def clear_interface(dev: str | None, hosts: Path | None, *, as_json: bool) -> int:
    """Take off what was put on an interface, or on those of hosts."""
    if (dev is None) == (hosts is None):
        raise ConfigError("which interface? Give --dev wlan0, or --hosts FILE for all that is shaped on other machines")
    if hosts is not None:
        return ask_hosts(hosts, "clear", as_json=as_json)
    assert dev is not None
    _require_rights()
    with DeferredInterrupts(), Kernel() as kernel:
        cleared = clear(kernel, dev)
    if as_json:
        print_json({"dev": dev, "run": cleared.run, "removed": list(cleared.removed), "difference": cleared.difference})
    elif not cleared.removed:
        print(f"nothing of bwbench on {dev}")
    else:
        for what in cleared.removed:
            print(f"removed {what}")
    if cleared.difference is not None:
        stderr().print(cleared.difference)
    return EXIT_OK if cleared.difference is None else EXIT_UNFIT_MACHINE


class DeferredInterrupts:
    """A context manager in which SIGINT, SIGTERM and SIGHUP are noted instead of raised.

    An exception in the midst of a talk with the kernel leaves its answers unread, and pyroute2 turns it into errors of
    its own (a KeyError, say). All that is done here has limits of its own; who asks a second time is heard at once.

    Attributes:
        asked: whether there was such a signal.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def __enter__(self) -> DeferredInterrupts:
        for number, handler in self._before.items():
            if handler != signal.SIG_IGN:  # as `nohup` and background jobs of a shell have them
                signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self, limit_s: float) -> bool:
        """Let a time pass; True, at once, after such a signal."""
        end_s = time.monotonic() + limit_s
        while not self.asked and (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, left_s))
        return self.asked

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def apply_to_hosts(file: Path, options: LinkOptions, duration_s: float, *, as_json: bool) -> int:
    """Shape the hosts among each other until Ctrl-C, at most ``duration_s``."""
    hosts = inventory(file)
    if len(hosts) < 2:
        raise ConfigError(f"--hosts {file}: a link needs two hosts at least")
    link = of_a_kernel(read_link(options, len(hosts)))
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
            lines = [
                f"{found['interface']}: {found['applied']} (run {found['run']}, for another {found['left_s']:.0f} s)"
                for found in answer.get("shaped", ())
            ]
            lines += [f"removed {what}" for what in answer.get("removed", ())]
            lines += [str(answer["problem"])] if answer.get("problem") else []
            for line in lines or ["nothing of bwbench"]:
                print(f"{host.name}: {line}")
    return EXIT_UNFIT_MACHINE if any(answer.get("problem") for answer in answers.values()) else EXIT_OK
