"""What plugins and scripts wrote for bwbench 0.1 goes on working, with the same classes."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from bwbench.base.old_names import MOVED, new_name

BASES = {
    "bwbench.algorithms.base": "AbstractAlgorithm",
    "bwbench.collectives.base": "AbstractCollective",
    "bwbench.compression.base": "AbstractCodec",
    "bwbench.compression.contract": "violations",
    "bwbench.compression.none": "NoCompression",
    "bwbench.compression.linear": "AbstractLinearCodec",
    "bwbench.models.base": "AbstractModel",
    "bwbench.models.contract": "violations",
    "bwbench.datasets.base": "AbstractDataset",
    "bwbench.datasets.contract": "dataset_violations",
}


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_new_module(old: str) -> None:
    new = importlib.import_module(MOVED[old])
    assert importlib.import_module(old) is new
    assert new.__spec__ is not None and new.__spec__.name == MOVED[old]


@pytest.mark.parametrize(("module", "name"), BASES.items())
def test_what_plugins_derive_from_is_found(module: str, name: str) -> None:
    code = f"from {module} import {name}; assert {name}.__module__.startswith(('bwbench.methods', 'bwbench.training'))"
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_modules_below_a_moved_package_are_found() -> None:
    code = (
        "from bwbench.compression.base import AbstractCodec, as_flat_fp32\n"
        "from bwbench.compression.contract import violations\n"
        "from bwbench.config.component import ComponentConfig\n"
        "from bwbench.registry import COMPRESSIONS, load_plugin\n"
        "import bwbench.algorithms.every_step, bwbench.methods.algorithms.every_step\n"
        "assert bwbench.algorithms.every_step is bwbench.methods.algorithms.every_step\n"
        "from bwbench.methods.compression.codec import AbstractCodec as new\n"
        "assert new is AbstractCodec\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)


@pytest.mark.parametrize(
    "words, said",
    [
        (["bwbench.train.worker"], "CELL_JSON"),
        (["bwbench.launch.ssh.keeper", "remove"], "JSON"),  # a controller may ask by its own name
    ],
)
def test_a_program_is_started_by_its_old_name(words: list[str], said: str) -> None:
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, input="no JSON\n", capture_output=True, text=True, timeout=120, check=False)
    assert said in done.stderr


def test_the_program_in_sudoers_of_hosts_is_found_by_its_old_name() -> None:
    from bwbench.running.launch.ssh import shaper

    assert importlib.import_module(shaper.OLD_NAME) is importlib.import_module(shaper.SHAPER) is shaper


def test_what_was_never_there_is_not_found() -> None:
    assert new_name("bwbench.methods") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("bwbench.compression.no_such_codec")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("bwbench.no_such_module")
