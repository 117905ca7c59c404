"""What a newcomer waits for: size of the wheel, installing it into an empty environment, and the first commands.

Usage: python benchmarks/package.py [--json FILE] [--quick]

Builds the wheel and installs it with all that it needs, as pip finds it (from its cache, after the first time), into a
new environment. Commands are called from an empty folder. --quick leaves out the demo.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from tests.package.installed import copy_sources  # noqa: E402

ASKED = ("--nodes", "3", "--link", "cable")
ONE_ARM = ("--only", "arm=single|ring-fp16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []

    def measured(what: str, run: Callable[[], object]) -> None:
        started = time.perf_counter()
        run()
        rows.append({"what": what, "seconds": time.perf_counter() - started})
        print(f"{what:44} {rows[-1]['seconds']:8.2f} s", flush=True)

    with tempfile.TemporaryDirectory(prefix="bwbench-package-") as name:
        folder = Path(name)
        source, outside, environment = copy_sources(folder / "source"), folder / "outside", folder / "environment"
        outside.mkdir()
        measured("python -m build (sdist, wheel)", lambda: call(sys.executable, "-m", "build", "-n", str(source)))
        for package in sorted((source / "dist").iterdir()):
            rows.append({"what": package.name, "bytes": package.stat().st_size})
            print(f"{package.name:44} {package.stat().st_size / 1e3:8.0f} kB")
        (wheel,) = (source / "dist").glob("*.whl")
        measured("python -m venv", lambda: call(sys.executable, "-m", "venv", str(environment)))
        pip, bwbench = str(environment / "bin" / "pip"), str(environment / "bin" / "bwbench")
        torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
        measured("pip install torch", lambda: call(pip, "install", "-q", torch))
        measured("pip install the wheel, torch being there", lambda: call(pip, "install", "-q", str(wheel)))
        commands: list[tuple[str, ...]] = [("--help",), ("init", "experiment", "mine", *ASKED), ("plan", "mine.yaml"),
                                           ("run", "mine.yaml", *ONE_ARM), ("plot", "results/mine"),
                                           ("report", "results/mine"), ("init", "codec", "one-byte")]  # fmt: skip
        for command in commands if options.quick else [("demo",), *commands]:
            measured(f"bwbench {' '.join(command)}", lambda command=command: call(bwbench, *command, cwd=outside))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"rows": rows}) + "\n")


def call(*command: str, cwd: Path | None = None) -> None:
    """A program to its end, without modules of ours on its path; leaves with all that it has said where it fails."""
    ours = command[0] == sys.executable
    environment = {key: value for key, value in os.environ.items() if ours or key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
