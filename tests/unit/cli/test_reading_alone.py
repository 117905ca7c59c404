"""Figures and pages need the few libraries that ``make paper-figures`` installs on a bare clone, and no other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused}:
            raise ModuleNotFoundError(f"{{name}} is not there on a bare clone")

sys.meta_path.insert(0, Refuses())
import paper.program.__main__
import paper.program.pages
from bwbench.cli.main import main
sys.argv = ["bwbench", "plot", "results/published/wifi-measured", "--figure", "links", "--out", {out!r}]
main()
"""


def test_what_reads_records_needs_no_more_than_the_makefile_installs(tmp_path: Path) -> None:
    (installed,) = re.findall(r"^READING = (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (needed,) = re.findall(r"^dependencies = \[(.+?)^\]", project, re.MULTILINE | re.DOTALL)
    named = re.findall(r'"([\w-]+)', needed)
    others = {"sklearn" if name == "scikit-learn" else name for name in named if name not in installed.split()}
    assert {"torch", "psutil", "pyroute2"} <= others
    script = SCRIPT.format(refused=sorted(others), out=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and list(tmp_path.rglob("*.png")), done.stderr
