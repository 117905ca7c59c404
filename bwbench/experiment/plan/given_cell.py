"""The cell that a worker is given: a cell.json, which may lie in a folder that others can write to, and what the plan
says of it, which comes by the environment of the process that was started."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from bwbench.base.errors import ConfigError, RecordError
from bwbench.base.plain_data import JsonObject
from bwbench.experiment.plan.cell import Cell, plugins_named
from bwbench.records.files import read_bytes

CELL_ID = "BWBENCH_CELL_ID"
PLUGINS = "BWBENCH_PLUGINS"  # paths with colons between, as in PATH
# Of torch's C++ part: it warns of every address that has no name, or none of IPv6, though all is well (socket.cpp).
# What goes wrong comes as an exception. A level that the user has set stands.
TORCH_LOG_LEVEL, ERRORS_ONLY = "TORCH_CPP_LOG_LEVEL", "ERROR"


def planned_environment(cell: Cell) -> dict[str, str]:
    """What tells a worker which cell was planned, with which plugins; and keeps warnings about nothing from its log."""
    return {
        CELL_ID: cell.id,
        PLUGINS: os.pathsep.join(cell.config.plugins),
        TORCH_LOG_LEVEL: os.environ.get(TORCH_LOG_LEVEL, ERRORS_ONLY),
    }


def given_cell(file: Path, environment: Mapping[str, str]) -> Cell:
    """The cell in ``file``, which is the one that was planned.

    Raises ConfigError where it is another one, names plugins that the environment does not, or is none.
    """
    content = _content(file)
    planned = environment.get(CELL_ID)
    if planned is not None and content.get("id") != planned:
        raise ConfigError(
            f"{file} is that of cell {content.get('id')}, where {planned} was planned; plan the experiment again"
        )
    named = os.pathsep.join(map(str, plugins_named(content)))
    if named != environment.get(PLUGINS, ""):
        raise ConfigError(
            f"{file} names plugins, which are imported only where they are the plan's: read them, and start the worker "
            f"with {PLUGINS}={named}"
        )
    return Cell.from_json(content, [str(plugin) for plugin in plugins_named(content)])


def _content(file: Path) -> JsonObject:
    try:
        content = json.loads(read_bytes(file) or b"")
    except (RecordError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read as the JSON of a cell: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{file} holds no JSON object; a cell's file is called cell.json")
    return content
