"""The one step of building that pyproject.toml cannot say: the JSON schema of experiment files, made from the models.

Everything else stands in pyproject.toml. Its `build-system.requires` has what the models import; torch is not among it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
MODULE = "bwbench.experiment.config.experiment_schema"
SCHEMA = Path("bwbench", "experiment", "config", "experiment.schema.json")


class BuildWithSchema(build_py):
    """Writes the schema into what is built; of an editable install, beside the package."""

    def run(self) -> None:
        """Build, then write the schema: in a process of its own, which imports the package that is being built."""
        super().run()
        file = (ROOT if self.editable_mode else Path(self.build_lib).resolve()) / SCHEMA
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        subprocess.run([sys.executable, "-m", MODULE, str(file)], env={**os.environ, "PYTHONPATH": path}, check=True)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """What is built, the schema included."""
        built = [] if self.editable_mode else [str(Path(self.build_lib) / SCHEMA)]
        return [*super().get_outputs(include_bytecode), *built]


setup(cmdclass={"build_py": BuildWithSchema})
