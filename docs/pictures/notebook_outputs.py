"""Runs docs/notebook.ipynb and writes it with what it came to: python docs/pictures/notebook_outputs.py [--out FILE].

Its cells run in a folder of their own, so that nothing of this machine's paths gets into it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "notebook.ipynb"
LIMIT_S = 900.0  # of one cell of it


def executed(notebook: Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs; raises nbclient's CellExecutionError where a cell of it does."""
    content = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        about = {"metadata": {"path": folder}}
        client = NotebookClient(content, timeout=LIMIT_S, kernel_name="python3", resources=about, record_timing=False)
        client.execute()
    content.metadata.language_info = {"name": "python"}  # versions say nothing here, and change
    return content


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=NOTEBOOK)
    nbformat.write(executed(NOTEBOOK), parser.parse_args().out)
