from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bwbench
from bwbench.base.plugin_siblings import PluginSiblings
from bwbench.base.registry import load_plugin
from bwbench.base.start_module import REMOTELY, WITHOUT_CALLERS_FOLDER, module_command

ROOT = Path(bwbench.__file__).parents[1]
DESCRIBE = "bwbench.training.loop.describe"
SCHEMA = "bwbench.experiment.config.experiment_schema"


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """A working directory with files that are called like modules of Python, and that raise when they are imported."""
    for name in ("random", "json", "types", "pkgutil", "typing", "numpy", "wandb"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the working directory was imported')\n")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(module_command(SCHEMA), id="as we start all modules"),
        pytest.param([sys.executable, "-c", REMOTELY, SCHEMA], id="as another host is asked to"),
    ],
)
def test_a_module_is_started_without_the_working_directory(command: list[str], trapped: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=trapped, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "properties" in json.loads(done.stdout)


def test_a_module_that_a_user_starts_leaves_the_working_directory_out(trapped: Path) -> None:
    for name in ("types", "pkgutil", "typing"):  # Python itself imports these before it comes to the package
        (trapped / f"{name}.py").unlink()
    command, environment = [sys.executable, "-m", SCHEMA], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=trapped, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_users_own_module_keeps_its_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("import bwbench\n")
    (tmp_path / "mine" / "__main__.py").write_text("import beside\n")
    (tmp_path / "beside.py").write_text("print('found')\n")
    command, environment = [sys.executable, "-m", "mine"], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "found\n", done.stderr


def test_pythonpath_and_the_users_site_stay(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "named_by_pythonpath.py").write_text("")
    home = subprocess.run(
        [sys.executable, "-c", "import site; print(site.getusersitepackages())"],
        env={**os.environ, "PYTHONUSERBASE": str(tmp_path / "base")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    Path(home).mkdir(parents=True)
    Path(home, "of_the_user.py").write_text("print('of the user')\n")
    inner = "import named_by_pythonpath, of_the_user"
    (tmp_path / "elsewhere" / "asks.py").write_text(inner)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "elsewhere"),
        "PYTHONUSERBASE": str(tmp_path / "base"),
        "PYTHONNOUSERSITE": "",
    }
    python = "/usr/bin/python3" if sys.prefix != sys.base_prefix else sys.executable  # a venv has no user's site
    if not Path(python).exists():
        pytest.skip("no Python outside of the virtual environment")
    command = [python, *module_command("asks")[1:]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "of the user\n", done.stderr


def test_it_runs_the_very_package_that_it_lies_in(tmp_path: Path) -> None:
    (tmp_path / "bwbench").mkdir()
    (tmp_path / "bwbench" / "__init__.py").write_text("raise SystemExit('another bwbench')\n")
    done = subprocess.run(
        module_command(SCHEMA),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_code_for_python_c_begins_without_the_working_directory(trapped: Path) -> None:
    subprocess.run([sys.executable, "-c", f"{WITHOUT_CALLERS_FOLDER}; import random, json"], cwd=trapped, check=True)


def test_no_module_of_ours_is_started_any_other_way() -> None:
    """But for what sudo has to see as in its line, and what stands in files that people start."""
    spared = {"bwbench/running/launch/ssh/shaper.py", "bwbench/running/cluster/job_scripts.py"}
    found = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "bwbench").rglob("*.py")
        if any(line.strip() and '"-m"' in line.partition("#")[0] for line in file.read_text().splitlines())
    }
    assert found <= spared | {"bwbench/__init__.py"}


def test_a_plugin_imports_what_lies_beside_it_and_nobody_else_does(tmp_path: Path) -> None:
    (tmp_path / "sibling_a.py").write_text("import sibling_b\nvalue = 3\n")
    (tmp_path / "sibling_b.py").write_text("")
    (tmp_path / "sibling_c.py").write_text("")
    (tmp_path / "random.py").write_text("raise SystemExit('taken for random')\n")
    plugin = tmp_path / "plugin_with_siblings.py"
    plugin.write_text(
        "import random, sibling_a\nassert sibling_a.value == 3 and random.random() < 1\n"
        "def later():\n    import importlib\n    return importlib.import_module('sibling_c')\n"
    )
    before = list(sys.path)
    try:
        load_plugin(plugin)
        (module,) = [module for name, module in sys.modules.items() if name.startswith("bwbench_plugin_plugin_with")]
        with pytest.raises(ModuleNotFoundError):
            import sibling_c  # noqa: F401
        assert module.later().__name__ == "sibling_c" and sys.path == before
    finally:
        for name in ("sibling_a", "sibling_b", "sibling_c"):
            sys.modules.pop(name, None)


def test_a_finder_is_registered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    siblings = PluginSiblings()
    siblings.serve(tmp_path)
    siblings.serve(tmp_path / "other")
    assert sys.meta_path.count(siblings) == 1
