"""What the link layer achieves, measured by tools that are not ours: iperf3, ping, tc.

Goodput (the kernel's tbf beside it), round trips, queues, jitter, loss, the shared air, traces, scale: each figure
beside what was asked. The full run takes about as long as it says at its beginning; ``--resume`` goes on where one was
ended, and adds a second back end to the same file:

    python benchmarks/link_accuracy.py --json FILE
    BWBENCH_NETEM_TIMEOUT=1800 tests/netem/run -- .venv/bin/python benchmarks/link_accuracy.py \
        --backend netem --json FILE --resume

FILE gets a picture beside it (.png and .pdf). Take it on a quiet machine: what else runs shows in the figures.

Usage: python benchmarks/link_accuracy.py [--json FILE] [--quick] [--only NAME,NAME] [--backend relay|netem] [--resume]
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

from link_accuracy_parts import air, delay, goodput, jitter, loss, ring, scale, traces, wire_bytes
from link_accuracy_parts.case import Case, Options
from link_accuracy_parts.rows import Row, Store, line, not_measured
from link_accuracy_parts.tools import MeasurementError, UnavailableError, program

from bwbench.base.errors import BwbenchError, UnfitMachineError

MEASUREMENTS: dict[str, Callable[[Options], list[Case]]] = {
    "goodput": goodput.cases,
    "delay": delay.cases,
    "jitter": jitter.cases,
    "loss": loss.cases,
    "bytes": wire_bytes.cases,
    "air": air.cases,
    "ring": ring.cases,
    "traces": traces.cases,
    "scale": scale.cases,
}

QUICK_LIMIT_S = 44.0  # after that nothing new is begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help=f"some of {', '.join(MEASUREMENTS)}")
    parser.add_argument("--backend", choices=("relay", "netem"), default="relay")
    parser.add_argument("--resume", action="store_true", help="keep what stands in FILE, measure the rest")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(MEASUREMENTS)
    for name in names:
        if name not in MEASUREMENTS:
            parser.error(f"--only: there is no measurement {name!r}; there are {', '.join(MEASUREMENTS)}")
    if options.resume and options.json is None:
        parser.error("--resume needs the file to go on with: --json FILE")
    try:
        for tool in ("iperf3", "ping", "tc"):
            program(tool)
    except UnavailableError as error:
        print(f"{error}; install iperf3, iputils-ping and iproute2", file=sys.stderr)
        raise SystemExit(3) from None
    asked = Options(options.backend, options.quick)
    cases = [case for name in names for case in MEASUREMENTS[name](asked)]
    store = Store(options.json, options.resume)
    limit_s = QUICK_LIMIT_S if options.quick else math.inf
    try:
        measure([case for case in cases if not store.has(case.name, asked.backend)], asked.backend, store, limit_s)
    except KeyboardInterrupt:
        print("interrupted; --resume goes on from here", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        if options.json:
            store.write()
    outside = [entry for entry in store.rows if entry["ok"] is False]
    print(f"{len(store.rows)} figures, {len(outside)} of them outside of what is allowed or failed", file=sys.stderr)
    if options.json:
        from link_accuracy_parts.picture import draw

        for path in draw(store.rows, options.json.with_suffix("")):
            print(path, file=sys.stderr)


def measure(cases: list[Case], backend: str, store: Store, limit_s: float) -> None:
    """Run the cases one after another, as many as fit in ``limit_s``, and keep and show what each gives."""
    left_s = sum(case.seconds for case in cases)
    began_s = time.monotonic()
    print(f"{len(cases)} cases on {backend}, about {left_s / 60:.1f} min", file=sys.stderr)
    for number, case in enumerate(cases, 1):
        print(f"[{number}/{len(cases)}, about {left_s / 60:.1f} min left] {case.name}", file=sys.stderr, flush=True)
        fits = time.monotonic() - began_s + case.seconds < limit_s
        rows = attempt(case, backend) if fits else [left_out(case, backend, "no time left for it", None)]
        store.replace(case.name, backend, rows)
        for entry in rows:
            print(line(entry), flush=True)
        left_s -= case.seconds
    print(f"took {(time.monotonic() - began_s) / 60:.1f} min", file=sys.stderr)


def attempt(case: Case, backend: str) -> list[Row]:
    """The rows of a case; what went wrong is a row as well, so that the others go on."""
    try:
        return case.run()
    except (UnavailableError, UnfitMachineError) as error:
        return [left_out(case, backend, str(error), None)]
    except (MeasurementError, BwbenchError) as error:
        return [left_out(case, backend, str(error), False)]


def left_out(case: Case, backend: str, reason: str, ok: bool | None) -> Row:
    what, _, setting = case.name.partition(" ")
    return not_measured(what, setting, backend, reason, ok)


if __name__ == "__main__":
    main()
