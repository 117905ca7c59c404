"""The wheel is whole, and works where there is no clone: examples, templates, experiments, figures, plugins."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.package.installed import ROOT, Installed, build

COMPILER = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])  # that setuptools takes
# Seconds of training, in slow motion: a machine that does something else for 24 ms would make them invalid otherwise.
SMALL = ("--set", "limit.samples=1280", "--set", "evaluate.every=640 samples", "--set", "dilation=4")
DIGITS = ("--nodes", "2", "--link", "100 Mbit/s", "--latency", "1 ms")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def installed(packages: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed.make(tmp_path_factory.mktemp("installed"), packages[1])


def test_it_holds_what_the_repository_has_and_nothing_else(packages: tuple[Path, Path]) -> None:
    sdist, wheel = packages
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        metadata = file.read(next(name for name in names if name.endswith("METADATA"))).decode()
    for file in (ROOT / "configs").glob("*.yaml"):
        assert f"bwbench/examples/configs/{file.name}" in names
    assert "bwbench/examples/docs/add-a-codec.md" in names
    tracked = subprocess.run(["git", "ls-files", "bwbench"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert set(tracked.stdout.split()) <= names, "a file of bwbench/ is missing in the wheel"
    made = {name for name in names if not re.match(r"bwbench-[\d.]+\.dist-info/|bwbench/examples/", name)}
    schema, library = "bwbench/experiment/config/experiment.schema.json", "bwbench/methods/native.compiled.so"
    assert made - set(tracked.stdout.split()) == {schema, *([library] if COMPILER else [])}
    system = r"linux_\w+" if COMPILER else "any"
    assert re.fullmatch(rf"bwbench-[\d.]+-py3-none-{system}\.whl", wheel.name), "for any Python, of this system"
    assert wheel.stat().st_size < 2_000_000 and sdist.stat().st_size < 2_000_000
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"configs/wifi_10mbps.yaml", "CHANGELOG.md", "LICENSE", "setup.py", "bwbench/methods/native.h"} <= inside
    pages = ("docs/plugins.md", "docs/add-a")  # what `init` of a plugin points to
    others = {name.partition("/")[0] for name in inside if "/" in name and not name.startswith(pages)}
    assert not others & {"tests", "docs", "paper"}
    assert "On my link" in metadata and "Description-Content-Type: text/markdown" in metadata


def test_an_index_would_take_it(packages: tuple[Path, Path]) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, packages)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_not_the_clone_that_runs(installed: Installed) -> None:
    done = installed.run("python", "-c", "import bwbench, torch; print(bwbench.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(installed.environment), done.stderr
    assert "bwbench 0" in installed.bwbench("--version")


CODECS = """
import torch
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.native import find, native
codec = COMPRESSIONS.load("int8")()
x = torch.linspace(-1, 1, 1000)
assert torch.allclose(codec.decode(codec.encode(x), 1000), x, atol=0.01)
print("compiled" if native() else "not compiled", find().words)
"""


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_codecs_are_compiled(installed: Installed) -> None:
    done = installed.run("python", "-c", CODECS)
    assert done.stdout.startswith("compiled"), done.stdout + done.stderr


def test_without_a_compiler_it_is_built_and_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "no-compiler"))
    _, wheel = build(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    without = Installed.make(tmp_path, wheel)
    done = without.run("python", "-c", CODECS)
    assert "not compiled" in done.stdout and "no C compiler" in done.stdout, done.stdout + done.stderr
    without.install(tmp_path / "source", "--no-build-isolation", "--force-reinstall", "-e")
    done = without.run("python", "-c", CODECS + "import bwbench; print(bwbench.__file__)")
    assert "not compiled" in done.stdout and str(tmp_path / "source") in done.stdout, done.stdout + done.stderr


def test_an_experiment_from_its_question_to_its_pictures(installed: Installed) -> None:
    installed.bwbench("init", "experiment", "mine", *DIGITS)
    assert "cells" in installed.bwbench("plan", "mine.yaml")
    installed.bwbench("run", "mine.yaml", "--only", "arm=single|ring-fp16", *SMALL)
    assert "time-to-accuracy.png" in installed.bwbench("plot", "results/mine")
    assert "report.html" in installed.bwbench("report", "results/mine")
    assert (installed.outside / "results" / "mine" / "report.html").stat().st_size > 1_000_000


def test_examples_are_there(installed: Installed) -> None:
    installed.bwbench("init", "experiment", "theirs", "--example", "slow_laptop")
    assert "cells" in installed.bwbench("plan", "theirs.yaml")
    code = (
        "from bwbench.base.examples import RECORDS as R; from bwbench.records import iter_cells; print(*iter_cells(R))"
    )
    done = installed.run("python", "-c", code)
    assert "bandwidth-resnet8" in done.stdout, done.stderr


def test_a_plugin_is_installed_beside_it_and_keeps_its_contract(installed: Installed) -> None:
    page = installed.bwbench("init", "codec", "one-byte").rpartition("What each part is for: ")[2].strip()
    assert Path(page).read_text().startswith("# Add a codec"), "the page is there without a clone"
    package = installed.outside / "one-byte"
    installed.install(package, "--no-build-isolation")
    assert "one-byte" in installed.bwbench("list", "compressions")
    tested = installed.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=package)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    small = ("--only", "compression=one-byte", "--set", "repeats=1", *SMALL)
    assert "one-byte" in installed.bwbench("run", "compare.yaml", *small, cwd=package)


@pytest.mark.parametrize(
    ("published_at", "expected"),
    [
        (None, "See [there](https://x.org/y) and here, or [below](#below).\n\nEnd\n"),
        (
            "https://x.org/blob/v1/",
            "![a picture](https://x.org/blob/v1/docs/a.png?raw=true)\n\nSee [there](https://x.org/y) and "
            "[here](https://x.org/blob/v1/docs/x.md#part), or [below](#below).\n\nEnd\n",
        ),
    ],
)
def test_the_readme_leads_nowhere_that_is_not_there(published_at: str | None, expected: str) -> None:
    links = "[there](https://x.org/y) and [here](docs/x.md#part), or [below](#below)"
    text = f"![a picture](docs/a.png)\n\nSee {links}.\n\nEnd\n"
    source = (ROOT / "setup.py").read_text()
    code = source[source.index("def packaged_readme") : source.index("\nsetup(")]
    names: dict[str, object] = {"re": re}
    exec(code, names)
    assert names["packaged_readme"](text, published_at) == expected  # type: ignore[operator]


def test_the_readme_of_the_package_has_no_relative_link(packages: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(packages[1]) as file:
        metadata = file.read(next(name for name in file.namelist() if name.endswith("METADATA"))).decode()
    assert not re.findall(r"\]\((?!https?:|#)[^)]*\)", metadata)
