"""The plan of an experiment: its cells in the order in which they run, each a resolved configuration with a short name
for folders and tables and with an id. Which of the settings count for that, for ever.

Records are found again by their ids, so an id may never change by itself. Every key is hashed, but for those at the
values of ``DEFAULTS``: all of the link, and every key that is added from now on, with its default at that time. That
table is frozen, and says nothing about the defaults of today; a test names the keys that are hashed whatever their
value, all of 0.1 outside the link.

A new key gets a line in ``DEFAULTS``: cells that leave it alone keep their ids. A default that changes later on changes
no line: the new value is hashed from then on, and cells with it are other cells. Options of a component that has no
table, because it comes from a plugin, are hashed whatever their value. A component whose arithmetic changes raises its
class's ``revision``, which is hashed where it is not 1. Host, commit, role and kinship are recorded, and never hashed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ValidationError

from bwbench import __version__
from bwbench.base import registry
from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import explain
from bwbench.base.plain_data import Json, JsonObject, mapping_at
from bwbench.experiment.config.cell_config import METHOD_KEYS, CellConfig
from bwbench.experiment.config.experiment import Experiment, Point
from bwbench.experiment.config.matrix import COMPONENT_KEYS, Key
from bwbench.experiment.config.method_names import arm_name, standing_of
from bwbench.methods.roles import REFERENCE, Role, Topology, topology_by_name
from bwbench.network.link.link import as_recorded
from bwbench.records import SCHEMA
from bwbench.records.schema import PlanAbout

ID_LENGTH = 10  # hex digits
_NAMED = ("id", "slug", "experiment", "arm", "repeat")  # of a cell, as cell.json has them
FIRST_REVISION = 1

_TRACE = {
    **dict.fromkeys(("measures", "column", "unit", "columns", "sha256", "mean")),
    "format": "auto",
    "start": "0 us",
}
DEFAULTS: dict[str, dict[str, object]] = {
    "link": {
        **dict.fromkeys(("bandwidth", "up", "down", "loss_burst", "queue", "standard", "efficiency", "aggregation")),
        "trace": None,
        "shaped": True,
        "latency": "0 us",
        "jitter": "0 us",
        "jitter_kind": "independent",
        "jitter_distribution": "normal",
        "reorder": False,
        "loss": 0.0,
        "loss_in_bad": 1.0,
        "loss_in_good": 0.0,
        "medium": "switched",
        "fairness": "packet",
        "wired": [],
        "outages": [],
        "overrides": {},
        "seed": 1,
        "backend": "auto",
    },
    "link.tcp": dict.fromkeys(
        ("congestion_control", "slow_start_after_idle", "receive_buffer", "send_buffer", "rto_max")
    ),
    "link.overrides.*": dict.fromkeys(("bandwidth", "up", "down", "latency", "jitter", "loss", "queue", "trace")),
    "link.outages.*": dict.fromkeys(("every", "nodes")),
    "link.trace": dict.fromkeys(("up", "down")),
    "link.overrides.*.trace": dict.fromkeys(("up", "down")),
    **{f"{link}.trace.{way}": _TRACE for link in ("link", "link.overrides.*") for way in ("up", "down")},
}


def identity(config: CellConfig) -> str:
    """The id of a configuration: the first digits of the SHA-256 of what counts of it, as canonical JSON.

    A plugin file counts by its name and by the ``__version__`` that it declares, a trace by what is in it, neither by
    the folder it lies in, so that an experiment can be copied elsewhere and still find its results.
    """
    canonical = json.dumps(what_counts(config), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:ID_LENGTH]


def what_counts(config: CellConfig) -> JsonObject:
    """The settings that an id is made of."""
    content = _counted("", config.model_dump(mode="json", by_alias=True))
    if not config.link.has_jitter:
        del content["link"]["jitter_kind"]
    content["link"] = _of_link("link", content["link"])
    for section in ("compute", "evaluate", "limit", "target"):
        if asked := mapping_at(content, section):
            content[section] = _counted(section, asked)
    for kind, known in COMPONENT_KEYS.items():
        if kind != "compression":
            content[kind] = _of_component(kind, known, mapping_at(content, kind))
    content["compression"] = [
        _of_component("compression", registry.COMPRESSIONS, codec.to_json()) for codec in config.compression
    ]
    content["plugins"] = [[Path(path).name, _declared_version(Path(path))] for path in config.plugins]
    return content


def _counted(place: str, content: JsonObject) -> JsonObject:
    """What counts of the keys at one place."""
    frozen = DEFAULTS.get(place)
    if frozen is None:
        return dict(content)
    return {key: value for key, value in content.items() if key not in frozen or value != frozen[key]}


def _of_component(kind: str, known: registry.Registry, content: JsonObject) -> JsonObject:
    name = str(content["name"])
    counted = _counted(f"{kind} {name}", content)
    if partition := mapping_at(counted, "partition"):
        counted["partition"] = _of_component("partition", registry.PARTITIONS, partition)
    revision = getattr(known.load(name), "revision", FIRST_REVISION)
    return counted if revision == FIRST_REVISION else {**counted, "revision": revision}


def _of_link(place: str, content: Json) -> Json:
    """What counts of a link: what is not at its frozen default, at any depth; of a trace its content alone."""
    if isinstance(content, list):
        return [_of_link(f"{place}.*", item) for item in content]
    if not isinstance(content, dict):
        return content
    kept = {
        key: value
        for key, value in _counted(place, content).items()
        if not isinstance(value, dict) or value != DEFAULTS.get(f"{place}.{key}")
    }
    if "sha256" in kept:  # the name of the file and the mean rate say nothing more
        kept = {key: value for key, value in kept.items() if key not in ("file", "mean")}
    return {
        key: _of_link(f"{place}.{'*' if place.endswith('.overrides') else key}", value) for key, value in kept.items()
    }


def _declared_version(plugin: Path) -> str | None:
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
            **{key: getattr(self, key) for key in _NAMED},
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
        missing = [key for key in (*_NAMED, "config") if key not in data]
        if missing:
            raise ConfigError(f"cell.json lacks {', '.join(missing)}; plan the experiment again")
        try:
            config = CellConfig.model_validate(_with_earlier_link(data["config"]))
        except ValidationError as error:
            found = explain(error, CellConfig)
            problems = [Problem(f"cell.json: {'.'.join(map(str, ('config', *loc)))}: {text}") for loc, text in found]
            raise ConfigError(problems) from None
        cell_id, slug, experiment, arm = (str(data[key]) for key in ("id", "slug", "experiment", "arm"))
        return cls(cell_id, slug, experiment, arm, int(str(data["repeat"])), config)


def _with_earlier_link(config: Json) -> Json:
    """A recorded configuration whose link means what it meant when it was written."""
    if not isinstance(config, dict) or not isinstance(link := config.get("link"), dict):
        return config
    return {**config, "link": as_recorded(link)}


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
            file=experiment.file.name,
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
        same = f"{self.num_identical} cells are the same as another one and run once"
        return [*self.experiment.notes, *([same] if self.num_identical else [])]


def build_plan(experiment: Experiment) -> Plan:
    """Every point of ``experiment``, repeated; pure, apart from reading the declared versions of plugins."""
    cells: dict[str, Cell] = {}
    arms = [arm_name(point.config) for point in experiment.points]
    for repeat in range(experiment.repeats):
        for point, arm in zip(experiment.points, arms, strict=True):
            seed = point.config.seed + repeat
            config = point.config if repeat == 0 else point.config.model_copy(update={"seed": seed})
            cell_id = identity(config)
            if cell_id not in cells:
                name = slug(point, arm, experiment.varying, seed)
                cells[cell_id] = Cell(cell_id, name, experiment.name, arm, repeat, config)
    total = len(experiment.points) * experiment.repeats
    return Plan(experiment, tuple(cells.values()), total - len(cells))


def slug(point: Point, arm: str, varying: Sequence[Key], seed: int) -> str:
    """``ring-fp16-10Mbit-s0``: the method, the values of the axes that vary, the seed; safe in a file name."""
    parts = [arm]
    values, has_no_link = dict(point.values), standing_of(point.config).role == REFERENCE
    for key in varying:  # the arm's name says the method
        if key[0] in (*METHOD_KEYS, "seed") or (key[0] == "link" and has_no_link):
            continue
        parts.append(_value(key, values[key], point.config))
    # Units are closed up (``10Mbit``), and nothing remains that a shell or a file system minds.
    short = (part.replace("/s", "").replace(" ", "").replace("=", "") for part in parts)
    text = "-".join(filter(None, (UNSAFE.sub("-", part).strip("-._") for part in short)))[:MAX_SLUG].rstrip("-._")
    return f"{text}-s{seed}"


def _value(key: Key, value: Json, config: CellConfig) -> str:
    if key == ("link",):
        return config.link.describe().partition(" (")[0].replace(" one way", "")
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
