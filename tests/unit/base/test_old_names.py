"""What plugins and scripts wrote for bwbench 0.1 goes on working, with the same classes."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from bwbench.base.old_names import MOVED, new_name


@pytest.mark.parametrize("old", [old for old in MOVED if old != "bwbench.lightning"])
def test_an_old_name_is_the_new_module(old: str) -> None:
    new = importlib.import_module(MOVED[old])
    assert importlib.import_module(old) is new
    assert new.__spec__ is not None and new.__spec__.name == MOVED[old]


def test_modules_below_a_moved_package_are_found() -> None:
    code = (
        "from bwbench.compression.base import AbstractCodec, as_flat_fp32\n"
        "from bwbench.compression.contract import violations\n"
        "from bwbench.config.component import ComponentConfig\n"
        "from bwbench.registry import COMPRESSIONS, load_plugin\n"
        "import bwbench.algorithms.base, bwbench.methods.algorithms.base\n"
        "assert bwbench.algorithms.base is bwbench.methods.algorithms.base\n"
        "from bwbench.methods.compression.base import AbstractCodec as new\n"
        "assert new is AbstractCodec\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)


def test_a_program_is_started_by_its_old_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bwbench.train.worker"], capture_output=True, text=True, timeout=120, check=False
    )
    assert "CELL_JSON" in done.stderr


def test_what_was_never_there_is_not_found() -> None:
    assert new_name("bwbench.methods") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("bwbench.compression.no_such_codec")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("bwbench.no_such_module")
