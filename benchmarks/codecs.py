"""What encoding and decoding cost, as multiples of copying the tensor: every registered codec, on one thread.

A row a codec, size and way: compiled, and with torch and numpy, which is what remains where nothing is compiled; both
give the same bits. Copying means `copy_` into memory that is already there. All are measured in turn, so that they see
the same machine; times are the thread's processor time, as other programs may be running. What is encoded are normal
values; codecs that look at shapes see one matrix. Where a codec is biased, `feedback_s` is what encoding takes with
error feedback, which decodes as well and keeps the rest.

Usage: python benchmarks/codecs.py [--json FILE] [--quick] [--codec NAME]… [--elements NUMBER]…
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.compression import AbstractCodec, ErrorFeedback
from bwbench.methods.native import left_out, native

SIZES = (1_000_000, 25_000_000)
COLUMNS = 1000  # of the matrix
STANDARD_DEVIATION = 1e-3  # of the values
WAYS: dict[str, Callable[[], AbstractContextManager[None]]] = {"compiled": nullcontext, "torch": left_out}
COMPILED = ("fp16", "int8", "sign", "threshold", "top-k", "dgc")  # in part at least
# That we hold ourselves to: of encoding and decoding together, or of what error feedback makes of encoding.
LIMITS = {
    "compiled": {"fp16": 2.0, "int8": 3.0, "sign": 2.5, "threshold": 3.0, "top-k": 4.0},
    "torch": {"fp16": 3.0, "int8": 8.0, "sign": 10.0, "threshold": 12.0, "top-k": 15.0},
}
OF_FEEDBACK = ("sign",)


def measure(name: str, x: torch.Tensor, seconds: float, fewest_runs: int) -> list[dict[str, Any]]:
    """A row for each way: medians of as many runs as fit into ``seconds``."""
    ways = [way for way in WAYS if way == "torch" or (native() is not None and name in COMPILED)]
    codecs = {way: prepared(name, x.numel()) for way in ways}
    with_feedback = {way: ErrorFeedback(prepared(name, x.numel())) for way in ways}
    target = torch.zeros_like(x)
    times: dict[tuple[str, str], list[float]] = {}
    payload_bytes = 0

    def clocked(way: str, key: str, work: Callable[..., Any], *arguments: Any) -> Any:
        began = time.thread_time()
        result = work(*arguments)
        times.setdefault((way, key), []).append(time.thread_time() - began)
        return result

    began, runs = time.perf_counter(), 0
    while runs <= fewest_runs or time.perf_counter() - began < seconds:
        clocked("", "copy_s", target.copy_, x)
        for way in ways:
            codec = codecs[way]
            with WAYS[way]():
                payload = clocked(way, "encode_s", codec.encode, x)
                clocked(way, "decode_s", codec.decode, payload, x.numel())
                clocked(way, "decode_add_s", codec.decode_add, payload, target)
                if codec.biased and not codec.keeps_residual:
                    clocked(way, "feedback_s", with_feedback[way].encode, x)
            payload_bytes = payload.numel()
        runs += 1
    medians = {key: statistics.median(values[1:]) for key, values in times.items()}  # the first one warms up
    copy_s = medians["", "copy_s"]
    rows = []
    for way in ways:
        own = {key: value for (which, key), value in medians.items() if which == way}
        row = {"codec": name, "way": way, "elements": x.numel(), "bytes_per_element": payload_bytes / x.numel()}
        row |= {"multiple": (own["encode_s"] + own["decode_s"]) / copy_s, "runs": runs - 1, "copy_s": copy_s, **own}
        if name in LIMITS[way]:
            of_feedback = way == "compiled" and name in OF_FEEDBACK
            row |= {
                "limit": LIMITS[way][name],
                "limited": own["feedback_s"] / copy_s if of_feedback else row["multiple"],
            }
        rows.append(row)
    return rows


def prepared(name: str, num_elements: int) -> AbstractCodec:
    """A codec with its default options that knows what it will get."""
    codec: AbstractCodec = COMPRESSIONS.load(name)()
    codec.prepare([(num_elements // COLUMNS, COLUMNS), (num_elements % COLUMNS,)])
    return codec


def line(row: dict[str, Any]) -> str:
    """Of the table."""
    copy_s = row["copy_s"]
    text = (
        f"{row['codec']:10} {row['way']:8} {row['elements']:>10,} {row['bytes_per_element']:8.4f} {copy_s * 1e3:9.3f} "
    )
    text += " ".join(f"{row[key] / copy_s:8.2f}" for key in ("encode_s", "decode_s")) + f" {row['multiple']:9.2f} "
    text += f"{row['decode_add_s'] / copy_s:10.2f} "
    text += f"{row['feedback_s'] / copy_s:9.2f}" if "feedback_s" in row else f"{'':9}"
    if "limit" in row:
        text += f"   {'within' if row['limited'] <= row['limit'] else 'BEYOND'} {row['limit']:g}"
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--codec", action="append", choices=COMPRESSIONS.names(), help="instead of all")
    parser.add_argument("--elements", action="append", type=int, help="instead of 1 M and 25 M")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    seconds, fewest_runs = (0.3, 2) if options.quick else (6.0, 7)
    names = options.codec or COMPRESSIONS.names()
    load_before = os.getloadavg()[0]
    print(
        f"{'codec':10} {'way':8} {'elements':>10} {'bytes/el.':>8} {'copy ms':>8} {'encode':>8} {'decode':>8} "
        f"{'multiple':>9} {'decode_add':>10} {'feedback':>9}   limit   (in copies)"
    )
    rows = []
    for num_elements in options.elements or SIZES:
        x = torch.randn(num_elements, generator=torch.Generator().manual_seed(0)) * STANDARD_DEVIATION
        for name in names:
            measured = measure(name, x, seconds, fewest_runs)
            print(*map(line, measured), sep="\n", flush=True)
            rows += measured
    if options.json:
        setting = {"torch": torch.__version__, "cpu": _cpu(), "load_1min": [load_before, os.getloadavg()[0]]}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({**setting, "rows": rows}, indent=1) + "\n")


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
