"""Draws the pictures of docs/statistics.md and docs/measuring-honestly.md anew, the same byte for byte.

They stand beside the pages that show them. Each shows one rule, by bwbench's own functions: what these return for
made-up repeats is what is drawn.

Usage: python docs/pictures/draw.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import arrival_rules
import honesty_comparison
import honesty_page
import statistics_page

PAGES = (statistics_page, arrival_rules, honesty_page, honesty_comparison)
PICTURES = {name: picture for page in PAGES for name, picture in page.PICTURES.items()}


def draw(folder: Path) -> list[Path]:
    """Write every picture into ``folder``; returns their files."""
    files = []
    for name, picture in PICTURES.items():
        file = folder / f"{name}.svg"
        file.write_text(picture().svg(), encoding="utf-8", newline="\n")
        files.append(file)
    return files


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
