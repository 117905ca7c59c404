"""What encoding and decoding cost, as multiples of copying the tensor: every registered codec, on one thread.

A row a codec and size. Copying means `copy_` into memory that is already there, and is measured in turn with the codec,
so that both see the same machine; times are the thread's processor time, as other programs may be running. What is
encoded are normal values; codecs that look at shapes see one matrix. Where a codec is biased, `feedback_s` is what
encoding takes with error feedback, which decodes as well and keeps the rest.

Usage: python benchmarks/codecs.py [--json FILE] [--quick] [--codec NAME]… [--elements NUMBER]…
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.compression import AbstractCodec, ErrorFeedback

SIZES = (1_000_000, 25_000_000)
COLUMNS = 1000  # of the matrix
STANDARD_DEVIATION = 1e-3  # of the values
LIMITS = {"fp16": 3.0, "int8": 8.0, "threshold": 12.0, "sign": 10.0, "top-k": 15.0}  # that we hold ourselves to


def measure(name: str, x: torch.Tensor, seconds: float, fewest_runs: int) -> dict[str, Any]:
    """One row: medians of as many runs as fit into ``seconds``."""
    codec, with_feedback = prepared(name, x.numel()), ErrorFeedback(prepared(name, x.numel()))
    feedback = codec.biased and not codec.keeps_residual
    target = torch.zeros_like(x)
    times: dict[str, list[float]] = {"copy_s": [], "encode_s": [], "decode_s": [], "decode_add_s": [], "feedback_s": []}

    def clocked(key: str, work: Callable[..., Any], *arguments: Any) -> Any:
        began = time.thread_time()
        result = work(*arguments)
        times[key].append(time.thread_time() - began)
        return result

    began = time.perf_counter()
    while len(times["copy_s"]) <= fewest_runs or time.perf_counter() - began < seconds:
        clocked("copy_s", target.copy_, x)
        payload = clocked("encode_s", codec.encode, x)
        clocked("decode_s", codec.decode, payload, x.numel())
        clocked("decode_add_s", codec.decode_add, payload, target)
        if feedback:
            clocked("feedback_s", with_feedback.encode, x)
    medians = {key: statistics.median(values[1:]) for key, values in times.items() if values}  # the first one warms up
    return {
        "codec": name,
        "elements": x.numel(),
        "multiple": (medians["encode_s"] + medians["decode_s"]) / medians["copy_s"],
        "bytes_per_element": payload.numel() / x.numel(),
        "limit": LIMITS.get(name),
        "runs": len(times["copy_s"]) - 1,
        **medians,
    }


def prepared(name: str, num_elements: int) -> AbstractCodec:
    """A codec with its default options that knows what it will get."""
    codec: AbstractCodec = COMPRESSIONS.load(name)()
    codec.prepare([(num_elements // COLUMNS, COLUMNS), (num_elements % COLUMNS,)])
    return codec


def line(row: dict[str, Any]) -> str:
    """Of the table."""
    copy_s = row["copy_s"]
    text = f"{row['codec']:12} {row['elements']:>10,} {row['bytes_per_element']:8.4f} {copy_s * 1e3:9.3f} "
    text += " ".join(f"{row[key] / copy_s:8.2f}" for key in ("encode_s", "decode_s")) + f" {row['multiple']:9.2f} "
    text += f"{row['decode_add_s'] / copy_s:10.2f} "
    text += f"{row['feedback_s'] / copy_s:9.2f}" if "feedback_s" in row else f"{'':9}"
    if row["limit"] is not None:
        text += f"   {'within' if row['multiple'] <= row['limit'] else 'BEYOND'} {row['limit']:g}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--codec", action="append", choices=COMPRESSIONS.names(), help="instead of all")
    parser.add_argument("--elements", action="append", type=int, help="instead of 1 M and 25 M")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seconds, fewest_runs = (0.3, 2) if options.quick else (4.0, 7)
    names = options.codec or COMPRESSIONS.names()
    print(
        f"{'codec':12} {'elements':>10} {'bytes/el.':>8} {'copy ms':>8} {'encode':>8} {'decode':>8} {'multiple':>9} "
        f"{'decode_add':>10} {'feedback':>9}   limit   (in copies)"
    )
    rows = []
    for num_elements in options.elements or SIZES:
        x = torch.randn(num_elements, generator=torch.Generator().manual_seed(0)) * STANDARD_DEVIATION
        for name in names:
            rows.append(measure(name, x, seconds, fewest_runs))
            print(line(rows[-1]), flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
