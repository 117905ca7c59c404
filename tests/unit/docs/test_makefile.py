"""What the Makefile installs, and when: ``make -B`` holds every file to be out of date. What each tier of tests is."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.oldest_versions import lower_bounds

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose pip only writes down that it was called."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
        os.utime(tmp_path / name, (1e9, 1e9))
    tool = tmp_path / ".venv" / "bin" / "pip"
    tool.parent.mkdir(parents=True)
    tool.write_text(f"#!/bin/sh\necho $* >> {tmp_path}/installed\n")
    tool.chmod(0o755)
    return tmp_path


def installed(checkout: Path, *arguments: str) -> str:
    log = checkout / "installed"
    log.unlink(missing_ok=True)
    subprocess.run(["make", *arguments], cwd=checkout, check=True, capture_output=True, timeout=120)
    return log.read_text() if log.exists() else ""


@pytest.mark.parametrize("stamp", [".venv/ready", ".venv/reading"])
def test_an_environment_is_made_once(checkout: Path, stamp: str) -> None:
    assert "install" in installed(checkout, stamp)
    assert installed(checkout, stamp) == ""
    assert installed(checkout, "-B", stamp) == ""
    os.utime(checkout / "pyproject.toml")
    os.utime(checkout / stamp, (1e9, 1e9))
    assert "install" in installed(checkout, stamp)


def test_it_is_made_again_where_what_is_compiled_has_changed(checkout: Path) -> None:
    source = checkout / "bwbench" / "methods" / "native.c"
    source.parent.mkdir(parents=True)
    source.write_text("int bw_version(void) { return 1; }")
    os.utime(source, (1e9, 1e9))
    assert "install" in installed(checkout, ".venv/ready")
    assert installed(checkout, ".venv/ready") == ""
    os.utime(checkout / ".venv" / "ready", (1.1e9, 1.1e9))
    os.utime(source, (1.2e9, 1.2e9))
    assert "install" in installed(checkout, ".venv/ready")


def test_figures_need_no_torch(checkout: Path) -> None:
    assert "torch" not in installed(checkout, ".venv/reading")
    assert "torch" in installed(checkout, ".venv/ready")
    os.utime(checkout / ".venv" / "reading", (1e8, 1e8))
    assert installed(checkout, ".venv/reading") == ""  # what trains can read, too


def test_make_test_leaves_out_what_is_thorough_and_test_all_leaves_out_nothing(checkout: Path) -> None:
    def command(target: str) -> str:
        planned = subprocess.run(
            ["make", "-n", target, "PYTEST_ARGS=tests/unit -q"],
            cwd=checkout, check=True, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return next(line for line in planned.stdout.splitlines() if "-m pytest" in line).partition("-m pytest ")[2]

    assert command("test") == "-m 'not thorough' tests/unit -q"
    assert command("test-all") == "tests/unit -q"


@pytest.mark.parametrize("folder", ["e2e", "netns"])
def test_something_of_it_is_in_make_test(folder: str) -> None:
    texts = [file.read_text() for file in (ROOT / "tests" / folder).glob("test_*.py")]
    assert any("pytest.mark.main_job" in text for text in texts)


def test_every_requirement_has_a_lower_bound_that_test_oldest_can_install() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = lower_bounds(text)
    assert {"numpy", "pandas", "pyroute2", "lightning", "asyncssh", "pytest"} <= found.keys()
    assert "torch" not in found
    with pytest.raises(ValueError, match="has no lower bound"):
        lower_bounds(text.replace('"rich>=13"', '"rich"'))
