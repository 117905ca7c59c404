"""One cell of a plan: a resolved configuration with a name and an identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from pydantic import ValidationError

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import explain
from bwbench.base.plain_data import Json, JsonObject
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.method_names import standing_of
from bwbench.methods.roles import Role, Topology, topology_by_name
from bwbench.records import SCHEMA


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
    def from_json(cls, data: Mapping[str, Json]) -> Cell:
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
        cell_id, slug, experiment, arm = (str(data[key]) for key in ("id", "slug", "experiment", "arm"))
        return cls(cell_id, slug, experiment, arm, int(str(data["repeat"])), config)
