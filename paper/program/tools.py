"""The programs behind a paper: pandoc for LaTeX and Markdown, latexmk for the PDF."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bwbench.base.errors import UnfitMachineError

PACKAGES = "texlive-latex-recommended latexmk lmodern pandoc"
_EPOCH = "1704067200"  # any fixed moment: a date of building would make every PDF differ
_LONGEST_S = 300.0


def pandoc(text: str, arguments: Sequence[str], folder: Path) -> str:
    """``text`` through pandoc, run in ``folder``; raises UnfitMachineError where it is missing or refuses."""
    return _run(["pandoc", *arguments], folder, text)


def pdf(name: str, folder: Path) -> Path:
    """The PDF of ``name``.tex in ``folder``, the same bytes from the same source. Raises UnfitMachineError."""
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "-silent", f"{name}.tex"]
    _run(command, folder, "", log=folder / f"{name}.log")
    return folder / f"{name}.pdf"


def _run(command: Sequence[str], folder: Path, text: str, log: Path | None = None) -> str:
    if shutil.which(command[0]) is None:
        install = f"apt-get install --no-install-recommends {PACKAGES}"
        raise UnfitMachineError(f"{command[0]} is not installed; on Debian and Ubuntu: {install}")
    environment = {
        "SOURCE_DATE_EPOCH": _EPOCH,
        **os.environ,
        "FORCE_SOURCE_DATE": "1",
        "TEXMFVAR": str(folder / ".texmf"),
    }
    try:
        done = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, env=environment,
                              timeout=_LONGEST_S)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UnfitMachineError(f"{command[0]} was not done after {_LONGEST_S:g} s, and was ended") from None
    if done.returncode != 0:
        said = log.read_text(encoding="utf-8", errors="replace") if log and log.is_file() else done.stderr
        lines = [line for line in said.splitlines() if line.startswith(("!", "l.", "Error"))] or said.splitlines()[-8:]
        raise UnfitMachineError(f"{command[0]} failed in {folder}:\n  " + "\n  ".join(lines[:8]))
    return done.stdout
