"""The plan of an experiment: its cells in the order in which they run, each a resolved configuration with a short name
for folders and tables and with an id (``records/cell_identity.py``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ValidationError

from bwbench import __version__
from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import explain
from bwbench.base.plain_data import Json, JsonObject, list_at
from bwbench.base.registry import load_plugin
from bwbench.experiment.config.cell_config import METHOD_KEYS, CellConfig
from bwbench.experiment.config.experiment import Experiment, Point
from bwbench.experiment.config.matrix import Key
from bwbench.experiment.config.method_names import arm_name, arm_names, standing_of
from bwbench.experiment.config.tuned import is_tuned, read_reference
from bwbench.methods.roles import REFERENCE, Role, Topology, replicas_equal_by_name, topology_by_name
from bwbench.network.link.link import as_recorded
from bwbench.records import SCHEMA
from bwbench.records.cell_identity import identity
from bwbench.records.schema import PlanAbout

_NAMED = ("id", "slug", "experiment", "arm", "repeat")  # of a cell, as cell.json has them


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
        pilot: repeats whose spread has said how many there are; None where their number was fixed beforehand.
    """

    id: str
    slug: str
    experiment: str
    arm: str
    repeat: int
    config: CellConfig
    pilot: int | None = None

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
            **{key: getattr(self, key) for key in _NAMED},
            **({} if self.pilot is None else {"pilot": self.pilot}),
            "config": self.config.model_dump(mode="json", by_alias=True),
            "role": self.role,
            "kinship": self.kinship,
            "topology": None if self.topology is None else asdict(self.topology),
            "replicas_equal": replicas_equal_by_name(self.config.algorithm.name, self.config.collective.name),
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
        missing = [key for key in (*_NAMED, "config") if key not in data]
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
            config = CellConfig.model_validate(_with_earlier_link(data["config"]))
        except ValidationError as error:
            found = explain(error, CellConfig)
            problems = [Problem(f"cell.json: {'.'.join(map(str, ('config', *loc)))}: {text}") for loc, text in found]
            raise ConfigError(problems) from None
        cell_id, slug, experiment, arm = (str(data[key]) for key in ("id", "slug", "experiment", "arm"))
        if (own_id := identity(config)) != cell_id:
            text = f"cell.json has the id {cell_id}, and its configuration that of {own_id}"
            raise ConfigError(f"{text}; delete the cell's folder and plan the experiment again")
        pilot = data.get("pilot")
        repeat, pilot = int(str(data["repeat"])), None if pilot is None else int(str(pilot))
        return cls(cell_id, slug, experiment, arm, repeat, config, pilot)


def _with_earlier_link(config: Json) -> Json:
    """A recorded configuration whose link means what it meant when it was written."""
    if not isinstance(config, dict) or not isinstance(link := config.get("link"), dict):
        return config
    return {**config, "link": as_recorded(link)}


def plugins_named(data: Mapping[str, Json]) -> list[Json]:
    """The plugins that a cell.json names, for those who know where it comes from."""
    config = data.get("config")
    return list_at(config, "plugins") if isinstance(config, dict) else []


MAX_SLUG = 100  # with the id and ".part" it fits everywhere, encrypted file systems included (143 bytes)
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")  # in the name of a file


@dataclass(frozen=True)
class Plan:
    """All cells of an experiment.

    Attributes:
        experiment: what they were made from.
        cells: in running order: all of repeat 0, then all of repeat 1, and so on, so that a slow drift of the machine
            meets every arm alike.
        num_identical: cells that turned out to be the same as another one, and are planned once.
    """

    experiment: Experiment
    cells: tuple[Cell, ...]
    num_identical: int

    @property
    def about(self) -> PlanAbout:
        """The experiment as ``plan.json`` keeps it."""
        experiment = self.experiment
        return PlanAbout(
            name=experiment.name,
            file=experiment.file.name if experiment.file is not None else None,
            bwbench_version=__version__,
            repeats=experiment.repeats,
            seed=experiment.seed,
            plugins=tuple(plugin.name for plugin in experiment.plugins),
            varying=tuple(".".join(key) for key in experiment.varying),
            warnings=tuple(experiment.warnings),
            notes=tuple(self.notes),
        )

    @property
    def notes(self) -> list[str]:
        """What was decided for the user, and why."""
        several = f"{self.num_identical} cells are the same as another one and run once"
        same = "1 cell is the same as another one and runs once" if self.num_identical == 1 else several
        return [*self.experiment.notes, *([same] if self.num_identical else [])]


def build_plan(experiment: Experiment, repeats: Mapping[str, int] | None = None) -> Plan:
    """Every point of ``experiment``, repeated; pure, apart from reading the declared versions of plugins.

    Args:
        repeats: of the points whose first cell has these ids, where they are more than the experiment's.
    """
    cells: dict[str, Cell] = {}
    arms = arm_names([point.config for point in experiment.points])
    wanted = [(repeats or {}).get(identity(point.config), experiment.repeats) for point in experiment.points]
    pilot = None if experiment.until is None else experiment.repeats
    for repeat in range(max(wanted)):
        for point, arm, number in zip(experiment.points, arms, wanted, strict=True):
            if repeat >= number:
                continue
            seed = point.config.seed + repeat
            config = point.config if repeat == 0 else point.config.model_copy(update={"seed": seed})
            cell_id = identity(config)
            if cell_id not in cells:
                name = slug(point, arm_name(point.config), experiment.varying, seed)
                cells[cell_id] = Cell(cell_id, name, experiment.name, arm, repeat, config, pilot)
    return Plan(experiment, tuple(cells.values()), sum(wanted) - len(cells))


def slug(point: Point, method: str, varying: Sequence[Key], seed: int) -> str:
    """``ring-fp16-10Mbit-s0``: the method, the values of the axes that vary, the seed; safe in a file name."""
    parts = [method]
    values, has_no_link = dict(point.values), standing_of(point.config).role == REFERENCE
    for key in varying:  # the arm's name says the method
        if key[0] in (*METHOD_KEYS, "seed") or (key[0] == "link" and has_no_link):
            continue
        value = values[key]
        if key == ("optimizer",) and is_tuned(value):
            reference, _ = read_reference(value)
            value = reference.optimizer if reference is not None else None
        if value is not None or key != ("optimizer",):  # where only a table is named, nothing is told apart by it
            parts.append(_value(key, value, point.config))
    # Units are closed up (``10Mbit``), and nothing remains that a shell or a file system minds.
    short = (part.replace("/s", "").replace(" ", "").replace("=", "") for part in parts)
    text = "-".join(filter(None, (UNSAFE.sub("-", part).strip("-._") for part in short)))[:MAX_SLUG].rstrip("-._")
    return f"{text}-s{seed}"


def _value(key: Key, value: Json, config: CellConfig) -> str:
    if key == ("link",):
        return config.link.in_brief.replace(" one way", "")
    speaks_for_itself = key == ("link", "bandwidth") or key[-1] in ("name", "preset") or len(key) == 1
    if speaks_for_itself and isinstance(value, (str, Mapping)):
        return _name(value)
    return f"{key[-1]}{_name(value)}"


def _name(value: Json) -> str:
    """A value in few letters; of a component its name and its options."""
    if isinstance(value, Mapping):
        parts = [name] if isinstance(name := value.get("name"), str) else []
        for key, item in value.items():
            if key != "name":
                inner = _name(item)
                parts.append(f"{key}-{inner}" if isinstance(item, Mapping) else f"{key}{inner}")
        return "-".join(parts)
    if isinstance(value, list):
        return "-".join(map(_name, value))
    return "none" if value is None else str(value)
