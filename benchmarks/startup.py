"""How fast the command line answers: median wall time of ``bwbench --help`` and what it imports.

Usage: python benchmarks/startup.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

HEAVY = ("torch", "pandas", "matplotlib", "pyroute2", "sklearn", "numpy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    command = [str(Path(sys.executable).with_name("bwbench")), "--help"]
    times_s = []
    for _ in range(6 if options.quick else 11):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=30)
        times_s.append(time.perf_counter() - started)
    code = f"import sys, bwbench.cli.main; print([m for m in {HEAVY!r} if m in sys.modules])"
    heavy = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30).stdout
    row = {"command": "bwbench --help", "median_s": statistics.median(times_s[1:]), "runs": len(times_s) - 1}
    print(f"bwbench --help: median {row['median_s']:.3f} s of {row['runs']}; heavy modules imported: {heavy.strip()}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": [row]}) + "\n")


if __name__ == "__main__":
    main()
