"""The lower bounds of pyproject.toml as pins for pip: ``python tests/oldest_versions.py > pins.txt``.

Of what bwbench needs, of the extras that its tests use, and of the tests themselves. torch is left out: its old
releases are gigabytes. What is needed by these in turn is as new as they allow, as for whoever installs them today.
"""

from __future__ import annotations

import re
from pathlib import Path

LISTS = ("dependencies", "lightning", "ssh", "test")
LEFT_OUT = ("torch", "bwbench")
_PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lower_bounds(text: str) -> dict[str, str]:
    """Project and lowest version of every requirement in the lists; raises ValueError for one without a bound."""
    found = {}
    for name in LISTS:  # tomllib is there from Python 3.11 on
        block = re.search(rf"^{name} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
        if block is None:
            raise ValueError(f"pyproject.toml has no list {name}")
        for requirement in re.findall(r'"([^"]+)"', block[1]):
            project, bound = re.findall(r"^([\w.-]+)(?:\[[^\]]*\])?(?:>=([\d.]+))?", requirement)[0]
            if project in LEFT_OUT:
                continue
            if not bound:
                raise ValueError(f"pyproject.toml: {requirement!r} in {name} has no lower bound")
            found[project] = bound
    return found


if __name__ == "__main__":
    for project, version in lower_bounds(_PYPROJECT.read_text(encoding="utf-8")).items():
        print(f"{project}=={version}")
