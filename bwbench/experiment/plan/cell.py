"""One cell of a plan: a resolved configuration with a name and an identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ValidationError

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import explain
from bwbench.base.plain_data import Json, JsonObject, list_at
from bwbench.base.registry import load_plugin
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.method_names import standing_of
from bwbench.methods.roles import Role, Topology, topology_by_name
from bwbench.records import SCHEMA
from bwbench.records.cell_identity import identity


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
        """Equal for arms that compute the same mean, and so learn alike; else the arm's own name."""
        return standing_of(self.config).kinship or self.arm

    @property
    def topology(self) -> Topology | None:
        """Who averages with whom; None where nobody does."""
        return topology_by_name(self.config.collective.name)

    def to_json(self) -> JsonObject:
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
            "topology": None if self.topology is None else asdict(self.topology),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json], plugins: Sequence[str]) -> Cell:
        """The cell that ``to_json`` wrote.

        Args:
            plugins: of the experiment that the cell is of, which are imported. Those that a cell names itself never
                are: who has written it is not known.

        Raises:
            ConfigError: a key is missing, the schema is newer than this program, the configuration does not hold, it
                names other plugins, or its id is not the cell's.
        """
        schema = data.get("schema")
        if schema != SCHEMA:
            raise ConfigError(
                f"cell.json has schema {schema!r}, this version of bwbench reads {SCHEMA}; update bwbench"
            )
        missing = [key for key in ("id", "slug", "experiment", "arm", "repeat", "config") if key not in data]
        if missing:
            raise ConfigError(f"cell.json lacks {', '.join(missing)}; plan the experiment again")
        if plugins_named(data) != list(plugins):
            named, known = ", ".join(map(str, plugins_named(data))) or "none", ", ".join(plugins) or "none"
            raise ConfigError(
                f"cell.json names plugins that are not those of its experiment ({named}, not {known}); read them, then "
                "plan the experiment again with them under 'plugins:' of its YAML"
            )
        for path in plugins:
            load_plugin(Path(path))
        try:
            config = CellConfig.model_validate(data["config"])
        except ValidationError as error:
            found = explain(error, CellConfig)
            problems = [Problem(f"cell.json: {'.'.join(map(str, ('config', *loc)))}: {text}") for loc, text in found]
            raise ConfigError(problems) from None
        cell_id, slug, experiment, arm = (str(data[key]) for key in ("id", "slug", "experiment", "arm"))
        if (own_id := identity(config)) != cell_id:
            text = f"cell.json has the id {cell_id}, and its configuration that of {own_id}"
            raise ConfigError(f"{text}; delete the cell's folder and plan the experiment again")
        return cls(cell_id, slug, experiment, arm, int(str(data["repeat"])), config)


def plugins_named(data: Mapping[str, Json]) -> list[Json]:
    """The plugins that a cell.json names, for those who know where it comes from."""
    config = data.get("config")
    return list_at(config, "plugins") if isinstance(config, dict) else []
