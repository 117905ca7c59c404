"""One cell of a plan: a resolved configuration with a name and an identity."""

from __future__ import annotations

import ast
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import explain
from bwbench.experiment.config.arms import standing_of
from bwbench.experiment.config.cell import CellConfig
from bwbench.methods.roles import Role

SCHEMA = 1
_ID_LENGTH = 10


@dataclass(frozen=True)
class Cell:
    """One training run to be made.

    Attributes:
        id: 10 hex digits out of the configuration; equal configurations have equal ids.
        slug: short readable name, safe in a file name; not unique without the id.
        experiment: name of the experiment that it belongs to.
        arm: display name of the method, e.g. ``ring-fp16``.
        repeat: 0-based.
        config: all that the worker needs.
    """

    id: str
    slug: str
    experiment: str
    arm: str
    repeat: int
    config: CellConfig

    @property
    def folder_name(self) -> str:
        """Name of the cell's folder inside ``results/<experiment>/``."""
        return f"{self.slug}-{self.id}"

    @property
    def role(self) -> Role:
        """``method``, ``reference`` (one node alone) or ``headroom`` (averages that cost nothing)."""
        return standing_of(self.config).role

    @property
    def kinship(self) -> str:
        """Equal for arms that compute the same mean, and so learn alike."""
        return standing_of(self.config).kinship

    def to_json(self) -> dict[str, Any]:
        """What ``cell.json`` holds."""
        return {
            "schema": SCHEMA,
            "id": self.id,
            "slug": self.slug,
            "experiment": self.experiment,
            "arm": self.arm,
            "repeat": self.repeat,
            "config": self.config.model_dump(mode="json", by_alias=True),
            "role": self.role,
            "kinship": self.kinship,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Cell:
        """The cell that ``to_json`` wrote. The id is taken over, never computed anew.

        Raises:
            ConfigError: a key is missing, the schema is newer than this program, or the configuration does not hold.
        """
        schema = data.get("schema")
        if schema != SCHEMA:
            raise ConfigError(
                f"cell.json has schema {schema!r}, this version of bwbench reads {SCHEMA}; update bwbench"
            )
        missing = [key for key in ("id", "slug", "experiment", "arm", "repeat", "config") if key not in data]
        if missing:
            raise ConfigError(f"cell.json lacks {', '.join(missing)}; plan the experiment again")
        try:
            config = CellConfig.model_validate(data["config"])
        except ValidationError as error:
            found = explain(error, CellConfig)
            problems = [Problem(f"cell.json: {'.'.join(map(str, ('config', *loc)))}: {text}") for loc, text in found]
            raise ConfigError(problems) from None
        return cls(data["id"], data["slug"], data["experiment"], data["arm"], data["repeat"], config)


def identity(config: CellConfig) -> str:
    """The id of a configuration: the first digits of the SHA-256 of its canonical JSON.

    A plugin file counts by its name and by the ``__version__`` that it declares, a trace by what is in it, neither by
    the folder it lies in, so that an experiment can be copied elsewhere and still find its results. Of the link counts
    what is not left at its default, so that a new key of later versions changes no identity.
    """
    content = config.model_dump(mode="json", by_alias=True)
    content["link"] = _without_paths(config.link.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    content["plugins"] = [[Path(path).name, declared_version(Path(path))] for path in config.plugins]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:_ID_LENGTH]


def _without_paths(value: Any) -> Any:
    """Traces by their content alone: the name of the file and the mean rate say nothing more."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if not ("sha256" in value and key in ("file", "mean"))}
        return {key: _without_paths(item) for key, item in kept.items()}
    return value


def declared_version(plugin: Path) -> str | None:
    """``__version__ = "…"`` of a plugin file, read without running it; None where it has none."""
    try:
        tree = ast.parse(plugin.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "__version__" for t in node.targets
        ):
            return str(node.value.value) if isinstance(node.value, ast.Constant) else None
    return None
