"""Ways to make the slow parts of codecs fast, side by side in copies of the tensor, on one thread.

What is compiled with bwbench, what torch has operators for, and loops that numba compiles while the program runs (where
it is installed; it is no dependency). The others need not give the same bits: this says what each way could reach.
Copies and ways are measured in turn, in processor time; what numba compiles is compiled before.

Usage: python benchmarks/codec_ways.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.compression import ErrorFeedback
from bwbench.methods.compression.sparse import at_least, bits_of
from bwbench.methods.native import left_out

try:
    import numba
except ImportError:
    numba = None

SIZES = (1_000_000, 25_000_000)
BLOCK = 1024  # of signs
THRESHOLD = 2.575  # that 1 % of normal values exceed
Way = Callable[[torch.Tensor], Any]


def ours(name: str) -> Way:
    codec = COMPRESSIONS.load(name)()
    return lambda x: codec.decode(codec.encode(x), x.numel())


def our_signs() -> Way:
    return ErrorFeedback(COMPRESSIONS.load("sign")()).encode


def places(x: torch.Tensor) -> Any:
    return at_least(x.numpy(), bits_of(THRESHOLD))


def without(way: Way) -> Way:
    """The same with torch and numpy, as where nothing is compiled."""

    def run(x: torch.Tensor) -> Any:
        with left_out():
            return way(x)

    return run


def torch_int8(x: torch.Tensor) -> torch.Tensor:
    low, high = torch.aminmax(x)
    scale = float(high - low) / 255
    quantized = torch.quantize_per_tensor(x, scale, int(round(-float(low) / scale)), torch.quint8)
    return quantized.dequantize()


def torch_signs() -> Way:
    """Signs are left at a byte each: torch has no operator that packs bits."""
    excess: list[torch.Tensor] = []

    def run(x: torch.Tensor) -> torch.Tensor:
        if not excess:
            excess.append(torch.zeros_like(x))
        total = x - excess[0]
        blocks = total[: x.numel() // BLOCK * BLOCK].view(-1, BLOCK)
        means, negative = blocks.abs().mean(dim=1, keepdim=True), blocks < 0
        torch.sub(torch.where(negative, -means, means), blocks, out=excess[0][: blocks.numel()].view(-1, BLOCK))
        return negative

    return run


def numba_ways() -> dict[str, Way]:
    """Loops as one would write them; empty where numba is not installed."""
    if numba is None:
        return {}
    compiled = numba.njit(nogil=True)

    @compiled
    def bounds(x):
        low = high = x[0]
        for value in x:
            low, high = min(low, value), max(high, value)
        return low, high

    @compiled
    def codes_of(x, low, scale, codes):
        for i in range(len(x)):
            codes[i] = np.uint8((x[i] - low) * scale + np.float32(0.5))

    @compiled
    def values_of(codes, low, step, values):
        for i in range(len(codes)):
            values[i] = np.float32(codes[i]) * step + low

    @compiled
    def signs_of(x, excess, means, codes):
        for block in range(len(x) // BLOCK):
            begin, total = block * BLOCK, np.float32(0)
            for i in range(begin, begin + BLOCK):
                excess[i] = x[i] - excess[i]
                total += abs(excess[i])
            mean = total / np.float32(BLOCK)
            means[block] = mean
            for i in range(begin, begin + BLOCK, 8):
                byte = 0
                for j in range(8):
                    negative = excess[i + j] < 0
                    byte = byte << 1 | negative
                    excess[i + j] = (-mean if negative else mean) - excess[i + j]
                codes[i // 8] = byte

    @compiled
    def places_of(bits, threshold, found):
        count = 0
        for i in range(len(bits)):
            if (bits[i] & 0x7FFFFFFF) >= threshold:
                found[count] = i
                count += 1
        return count

    def int8(x: torch.Tensor) -> Any:
        array = x.numpy()
        low, high = bounds(array)
        codes, values = memory("codes", len(array), np.uint8), memory("values", len(array), np.float32)
        codes_of(array, low, np.float32(255) / (high - low), codes)
        values_of(codes, low, (high - low) / np.float32(255), values)
        return values

    kept: dict[tuple[str, int], np.ndarray] = {}

    def memory(name: str, length: int, dtype: Any) -> np.ndarray:
        return kept.setdefault((name, length), np.zeros(length, dtype))

    def signs(x: torch.Tensor) -> Any:
        blocks = x.numel() // BLOCK
        room = memory("means", blocks, np.float32), memory("signs", blocks * BLOCK // 8, np.uint8)
        signs_of(x.numpy(), memory("excess", x.numel(), np.float32), *room)
        return room

    def large(x: torch.Tensor) -> Any:
        found = memory("found", x.numel(), np.int64)
        return found[: places_of(x.numpy().view(np.int32), bits_of(THRESHOLD), found)]

    return {"int8, there and back": int8, "sign with residual": signs, "places above a threshold": large}


def all_ways() -> dict[str, dict[str, Way]]:
    """By what is done: the ways to do it."""
    by_numba = numba_ways()
    ways: dict[str, dict[str, Way]] = {
        "fp16, there and back": {
            "compiled": ours("fp16"),
            "fallback": without(ours("fp16")),
            "torch's operator": lambda x: x.half().float(),
        },
        "int8, there and back": {
            "compiled": ours("int8"),
            "fallback": without(ours("int8")),
            "torch's operator": torch_int8,
        },
        "sign with residual": {
            "compiled": our_signs(),
            "fallback": without(our_signs()),
            "torch's operator": torch_signs(),
        },
        "places above a threshold": {
            "compiled": places,
            "fallback": without(places),
            "torch's operator": lambda x: torch.nonzero(x.abs() >= THRESHOLD),
        },
    }
    return {what: own | ({"numba": by_numba[what]} if what in by_numba else {}) for what, own in ways.items()}


def measure(ways: dict[str, Way], x: torch.Tensor, seconds: float) -> dict[str, float]:
    """Copies that each way takes: medians."""
    target, times, began = torch.zeros_like(x), {}, time.perf_counter()
    everything: dict[str, Way] = {"copy": target.copy_, **ways}
    while len(times.get("copy", [])) < 4 or time.perf_counter() - began < seconds:
        for name, way in everything.items():
            started = time.thread_time()
            way(x)
            times.setdefault(name, []).append(time.thread_time() - started)
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    return {name: medians[name] / medians["copy"] for name in ways}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load_before, rows = os.getloadavg()[0], []
    for num_elements in SIZES:
        x = torch.randn(num_elements, generator=torch.Generator().manual_seed(0))
        for what, ways in all_ways().items():
            copies = measure(ways, x, 0.5 if options.quick else 5.0)
            rows.append({"what": what, "elements": num_elements, "copies": copies})
            told = "  ".join(f"{name} {value:.2f}" for name, value in copies.items())
            print(f"{what:26} {num_elements:>10,}  {told}", flush=True)
    if numba is None:
        print("numba is not installed")
    if options.json:
        versions = {"torch": torch.__version__, "numba": getattr(numba, "__version__", None)}
        setting = {**versions, "load_1min": [load_before, os.getloadavg()[0]]}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({**setting, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
