"""What building does that pyproject.toml cannot say: compiled codecs, a schema, examples, a README for package indexes.

Everything else stands in pyproject.toml. Its `build-system.requires` has what the models import that the schema of
experiment files is made from; torch is not among it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
MODULE = "bwbench.experiment.config.experiment_schema"
SCHEMA = Path("bwbench", "experiment", "config", "experiment.schema.json")
# What the package brings along lies where users of the repository know it; bwbench/base/examples.py finds it in both.
EXAMPLES = Path("bwbench", "examples")
EXAMPLE_FILES = (
    "configs/*.yaml",
    "results/published/bandwidth-resnet8/cells.jsonl.gz",
    "docs/plugins.md",  # what `init` of a plugin ends with: the pages about its parts
    "docs/add-a*.md",
)
# bwbench/methods/native.py loads it by ctypes. Where it does not compile the package is built without it.
COMPILED = Extension(
    "bwbench.methods.native",
    sources=["bwbench/methods/native.c", "bwbench/methods/native_sparse.c", "bwbench/methods/native_ring.c"],
    depends=["bwbench/methods/native.h"],
    extra_compile_args=["-O3", "-ffp-contract=off", "-fvisibility=hidden"],  # off: bits are to be those of torch
    optional=True,
)
# Where a release's files can be read, as https://…/blob/v{version}/; None while they are published nowhere.
PUBLISHED_AT: str | None = None


class BuildWithExtras(build_py):
    """Adds the schema and the examples to what is built; of an editable install only the schema, beside the package."""

    def run(self) -> None:
        """Build, then write the schema: in a process of its own, which imports the package that is being built."""
        super().run()
        target = ROOT if self.editable_mode else Path(self.build_lib).resolve()
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", MODULE, str(target / SCHEMA)]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
        if not self.editable_mode:
            for source in example_files():
                copy = target / EXAMPLES / source
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / source, copy)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """What is built, schema and examples included."""
        extras = [] if self.editable_mode else [SCHEMA, *(EXAMPLES / source for source in example_files())]
        return [*super().get_outputs(include_bytecode), *(str(Path(self.build_lib) / extra) for extra in extras)]


class BuildCompiled(build_ext):
    """Compiles what is no Python module: its name tells no version of Python, as it does not depend on any."""

    def get_ext_filename(self, fullname: str) -> str:
        """Where bwbench/methods/native.py looks for it."""
        return os.path.join(*fullname.split(".")) + ".compiled.so"


class WheelOfAnyPython(bdist_wheel):
    """One wheel for all versions of Python; for all systems, too, where nothing was compiled."""

    def get_tag(self) -> tuple[str, str, str]:
        """Of Python, its binary interface, and the system."""
        *_, system = super().get_tag()
        compiled = any(Path(self.bdist_dir).rglob("*.compiled.so")) if self.bdist_dir else False
        return "py3", "none", system if compiled else "any"


def example_files() -> list[Path]:
    """Relative to the repository; raises where a pattern finds nothing, so that no package is built without them."""
    found = []
    for pattern in EXAMPLE_FILES:
        files = sorted(ROOT.glob(pattern))
        if not files:
            raise FileNotFoundError(f"setup.py: {pattern} is to be part of the package, and there is no such file")
        found += [file.relative_to(ROOT) for file in files]
    return found


def packaged_readme(text: str, published_at: str | None) -> str:
    """The README where there are no files beside it, as on a package index.

    Links and pictures that lead into the repository become addresses below ``published_at``; without such an address a
    link is its text, and a picture is left out with its line.
    """
    relative = r"\((?![a-z]+:|#)([^()\s]+)\)"
    if published_at is not None:
        text = re.sub(rf"(!\[[^\]]*\]){relative}", lambda m: f"{m[1]}({published_at}{m[2]}?raw=true)", text)
        return re.sub(rf"(?<!!)(\[[^\]]*\]){relative}", lambda m: f"{m[1]}({published_at}{m[2]})", text)
    text = re.sub(rf"^!\[[^\]]*\]{relative}\n+", "", text, flags=re.MULTILINE)
    return re.sub(rf"(?<!!)\[([^\]]*)\]{relative}", r"\1", text)


setup(
    ext_modules=[COMPILED],
    cmdclass={"build_py": BuildWithExtras, "build_ext": BuildCompiled, "bdist_wheel": WheelOfAnyPython},
    long_description=packaged_readme((ROOT / "README.md").read_text(encoding="utf-8"), PUBLISHED_AT),
    long_description_content_type="text/markdown",
)
