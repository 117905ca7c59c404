"""Where data sets lie on this machine."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "BWBENCH_DATA"


def data_folder() -> Path:
    """Absolute path of the data folder, which need not exist yet: ``BWBENCH_DATA``, else the user's cache."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The specification of XDG says that a relative path is to be ignored.
    root = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return root / "bwbench" / "data"
