"""bwbench as users have it: built into a wheel, installed into an environment of its own, called far from a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What building needs; tests/package/test_package.py looks whether a package of these is whole.
SOURCES = ("bwbench", "configs", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md",
           "constraints.txt", "results/published/bandwidth-resnet8", "docs/plugins.md",
           *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("add-a*.md"))))  # fmt: skip
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "experiment.schema.json", "*.egg-info", "*.compiled.so")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
OFFLINE = ("-q", "--no-deps", "--no-index")


def copy_sources(target: Path) -> Path:
    """The files of the repository that a package is made of, in a new folder."""
    for name in SOURCES:
        source = ROOT / name
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=_LEFT_OUT)
        else:
            shutil.copy(source, target / name)
    return target


def build(folder: Path) -> tuple[Path, Path]:
    """sdist and wheel, the latter made from the former, as ``python -m build`` does; offline."""
    source = copy_sources(folder / "source")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(source)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return sdist, wheel


@dataclass(frozen=True)
class Installed:
    """An environment that has bwbench, and borrows torch and the like from the one that tests run in.

    Attributes:
        environment: its folder.
        outside: an empty folder, from which commands are called.
    """

    environment: Path
    outside: Path

    @classmethod
    def make(cls, folder: Path, wheel: Path) -> Installed:
        """Install a wheel into a new environment below ``folder``; offline, without another 200 MB of torch."""
        environment = folder / "environment"
        venv.create(environment, with_pip=False, symlinks=True)
        (folder / "outside").mkdir()
        installed = cls(environment, folder / "outside")
        installed.install(wheel)  # first: pip would take the bwbench of what is borrowed for this one
        (packages,) = environment.glob("lib/python*/site-packages")
        # Behind the environment's own folder. Their .pth files, that of a clone among them, are not looked at.
        borrowed = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (packages / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
        return installed

    def install(self, what: Path, *more: str) -> None:
        """Install a wheel or a folder; offline."""
        command = [*PIP, "--python", str(self.python), "install", *OFFLINE, *more, str(what)]
        done = subprocess.run(command, cwd=self.outside, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.environment / "bin" / "python"

    def run(self, *command: str, cwd: Path | None = None, timeout_s: float = 240.0) -> subprocess.CompletedProcess[str]:
        """A program of the environment, from outside of the clone."""
        clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        program = str(self.environment / "bin" / command[0])
        return subprocess.run(
            [program, *command[1:]],
            cwd=cwd or self.outside, env=clean, capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip

    def bwbench(self, *arguments: str, cwd: Path | None = None) -> str:
        """What ``bwbench`` printed, messages included; fails where it fails."""
        done = self.run("bwbench", *arguments, cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr
