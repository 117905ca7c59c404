"""Does every method send the bytes that it claims? Counted in real training runs, beside the formula and the plan.

Four nodes, 100 Mbit/s, model cnn (207,018 parameters), synthetic data: for each preset a cell of `bwbench run`, of at
least 24 steps and a whole number of periods. Compared are the payload with the formula of the method and with what
`bwbench plan` predicts, phase by phase where a method has two, and the frames that crossed the link with the formula
plus the headers of TCP/IP and of gloo's messages; within 3 %.

Usage: python benchmarks/wire_bytes.py [--json FILE] [--quick] [--only PRESET …] [--results DIR]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from wire_bytes_parts.comparison import TOLERANCE, compared, heading, shown
from wire_bytes_parts.formulas import METHODS, NODES, Method

QUICK = ("ring-fp16", "top-k")
GLOBAL_BATCH = 8 * NODES
STEP_BY_TIME = "100 ms"  # declared where bytes go by time: that of the plan's guess

EXPERIMENT = """
name: wire_bytes
nodes: {nodes}
link: {{bandwidth: 100 Mbit/s, latency: 2.5 ms}}
model: cnn
dataset: {{name: synthetic, shape: [1, 28, 28], classes: 10, samples: 4000}}
batch_size: 8
evaluate: {{every: 1000000 samples}}
matrix:
  algorithm, optimizer, limit.samples, compute:
{rows}
"""


def experiment_of(presets: list[str]) -> str:
    """YAML with a cell for each preset, in this order."""
    rows = [f"    - {json.dumps(list(row_of(name, METHODS[name])))}" for name in presets]
    return EXPERIMENT.format(nodes=NODES, rows="\n".join(rows))


def row_of(name: str, method: Method) -> tuple[Any, dict[str, Any], int, dict[str, Any]]:
    """Algorithm, optimizer, limit and compute of a cell."""
    algorithm = {name: dict(method.options)} if method.options else name
    optimizer = {method.optimizer: {"lr": 0.01 if method.optimizer == "sgd" else 0.001}}
    compute = {"threads": 1} if method.exchanges is not None else {"threads": 1, "step_time": STEP_BY_TIME}
    return algorithm, optimizer, method.steps * GLOBAL_BATCH, compute


def bwbench(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command of bwbench, as a user gives it."""
    return subprocess.run([sys.executable, "-m", "bwbench.cli.main", *arguments], text=True, **options)


def run(presets: list[str], results: Path) -> list[dict[str, Any]]:
    """Run what is missing; a row for each preset whose cell is done."""
    results.mkdir(parents=True, exist_ok=True)
    file = results / "wire_bytes.yaml"
    file.write_text(experiment_of(presets))
    again = [part for status in ("failed", "invalid", "timeout") for part in ("--retry", status)]
    ran = bwbench("run", str(file), "--results", str(results), *again, stdout=subprocess.DEVNULL)
    if ran.returncode > 1:  # no cell has failed, the machine has, or somebody has interrupted: it was said
        raise SystemExit(ran.returncode)
    planned = bwbench("plan", str(file), "--results", str(results), "--json", stdout=subprocess.PIPE, check=True)
    rows = []
    for name, cell in zip(presets, json.loads(planned.stdout)["cells"], strict=True):
        if cell["status"] == "done":
            rows.append(compared(name, METHODS[name], Path(cell["folder"]), cell["payload_bytes_per_step"]))
        else:
            rows.append({"preset": name, "ok": False, "why": f"the cell is {cell['status']}: {cell['why']}"})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK)} alone")
    parser.add_argument("--only", nargs="*", metavar="PRESET", choices=METHODS)
    parser.add_argument(
        "--results", type=Path, help="where cells are kept and found again (default: a folder that is thrown away)"
    )
    options = parser.parse_args()
    presets = options.only or (list(QUICK) if options.quick else list(METHODS))
    with tempfile.TemporaryDirectory() as thrown_away:
        rows = run(presets, (options.results or Path(thrown_away)).resolve())
    print(heading(), *map(shown, rows), sep="\n")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    if missed := [row["preset"] for row in rows if not row["ok"]]:
        raise SystemExit(f"not within {100 * TOLERANCE:.0f} %: {', '.join(missed)}")


if __name__ == "__main__":
    main()
