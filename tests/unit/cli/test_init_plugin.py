"""``bwbench init KIND NAME``: each package keeps the contract of its kind, plans without torch, and is well written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bwbench.base.errors import ConfigError
from bwbench.cli.init.init_command import PLUGINS
from bwbench.cli.init.plugin_package import next_steps, write
from bwbench.cli.main import _run

ROOT = Path(__file__).parents[3]
# Stands for installing a package: a folder on the path that says which entry points it has.
INFO = "Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A package of each kind, called my-KIND."""
    folder = tmp_path_factory.mktemp("packages")
    for kind in PLUGINS:
        write(kind, f"my-{kind}", folder / kind)
    return {kind: folder / kind for kind in PLUGINS}


def as_installed(package: Path) -> dict[str, str]:
    """An environment in which the package is found as if it were installed."""
    text = (package / "pyproject.toml").read_text()
    group = text.partition("entry-points.")[2].partition("]")[0].strip('"')
    line = text.partition(f'entry-points."{group}"]\n')[2].partition("\n")[0].replace('"', "")
    about = package / f"bwbench_{package.name}-0.1.0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(INFO.format(name=f"bwbench-{package.name}"))
    (about / "entry_points.txt").write_text(f"[{group}]\n{line}\n")
    return {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}"}


def run(*command: str, package: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=package, env=as_installed(package), capture_output=True, text=True, timeout=240,
    )  # fmt: skip


@pytest.mark.parametrize("kind", PLUGINS)
def test_it_keeps_its_contract(packages: dict[str, Path], kind: str) -> None:
    done = run("pytest", "-q", "-p", "no:cacheprovider", package=packages[kind])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", [kind for kind in PLUGINS if kind != "figure"])
def test_its_experiment_is_planned_by_its_entry_point_and_without_torch(packages: dict[str, Path], kind: str) -> None:
    done = run("bwbench.cli.main", "plan", "compare.yaml", package=packages[kind])
    assert done.returncode == 0, done.stderr
    assert "15 cells" in done.stderr or "18 cells" in done.stderr
    code = "import sys, importlib; importlib.import_module(sys.argv[1]); assert 'torch' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code, f"bwbench_my_{kind}"], env=as_installed(packages[kind]), timeout=60, check=True
    )


def test_a_figure_is_drawn_by_its_name(packages: dict[str, Path], tmp_path: Path) -> None:
    from bwbench.base.examples import RECORDS

    command = ["plot", str(RECORDS), "--figure", "my-figure", "--out", str(tmp_path), "--format", "png"]
    done = run("bwbench.cli.main", *command, package=packages["figure"])
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("my-figure*.png"))


def test_codecs_are_compared_over_one_collective_and_with_what_could_be_gained_at_most(
    packages: dict[str, Path],
) -> None:
    for kind in (kind for kind in PLUGINS if kind != "figure"):
        assert "no-communication" in (packages[kind] / "compare.yaml").read_text(), kind
    (arms,) = yaml.safe_load((packages["codec"] / "compare.yaml").read_text())["matrix"].values()
    assert {collective for algorithm, collective, _ in arms if algorithm == "every-step"} == {"scatter-gather"}


@pytest.mark.parametrize("kind", PLUGINS)
def test_it_is_well_written(packages: dict[str, Path], kind: str) -> None:
    pytest.importorskip("ruff", reason="ruff is there for `make check`")
    rules = ["--select", "E,F,I,B,UP,C4,PIE,D1", "--ignore", "D100,D103,D104"]
    for command in (["check", *rules], ["format", "--diff"]):
        command = [sys.executable, "-m", "ruff", *command, "--isolated", "--config", "line-length=120", "."]
        done = subprocess.run(command, cwd=packages[kind], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", PLUGINS)
def test_what_to_do_next_names_what_is_there(packages: dict[str, Path], kind: str) -> None:
    steps = "\n".join(next_steps(kind, f"my-{kind}", packages[kind]))
    (page,) = re.findall(r"What each part is for: (.*\.md)$", steps)
    assert Path(page).is_absolute() and Path(page).read_text().startswith("# Add a")
    assert ("compare.yaml" in steps) == (packages[kind] / "compare.yaml").is_file()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sign", "is taken by bwbench"),
        ("One-Bit", "is no name for it"),
        ("one_bit", "is no name for it"),
        ("1-bit", "is no name for it"),
        ("../one", "is no name for it"),
        ("abstract", "is no name for it"),
        ("a" * 25, "is no name for it"),
    ],
)
def test_names_that_cannot_be(name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["init", "codec", name, "--to", str(tmp_path / "new")]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one-bit").mkdir()
    assert _run(["init", "codec", "one-bit"]) == 2
    assert "one-bit is there already, and is left as it is" in capsys.readouterr().err
    assert not list((tmp_path / "one-bit").iterdir())
    with pytest.raises(ConfigError, match="there is no folder"):
        write("codec", "one-bit", tmp_path / "nowhere" / "one-bit")
    assert [path.name for path in tmp_path.iterdir()] == ["one-bit"]


def test_a_package_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError):
        write("codec", "one-bit", tmp_path / "one-bit")
    assert not list(tmp_path.iterdir())
