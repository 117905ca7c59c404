"""Small experiments for tests of sweeps."""

from __future__ import annotations

from pathlib import Path

STUDY = """\
name: {name}
nodes: 2
link: {{bandwidth: 10 Mbit/s, latency: 2.5 ms}}
model: logistic
dataset: digits
optimizer: {{sgd: {{lr: 0.05}}}}
repeats: {repeats}
matrix:
  algorithm: [{arms}]
  link.bandwidth: [1 Mbit/s, 10 Mbit/s]
"""


def write_study(folder: Path, name: str = "study", repeats: int = 2, arms: str = "ring, threshold, ddp") -> Path:
    """An experiment of ``repeats`` × arms × 2 links."""
    path = folder / f"{name}.yaml"
    path.write_text(STUDY.format(name=name, repeats=repeats, arms=arms))
    return path
