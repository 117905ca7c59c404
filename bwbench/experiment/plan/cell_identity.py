"""The id of a cell: which of its settings count, for ever.

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
from pathlib import Path

from bwbench.base import registry
from bwbench.base.plain_data import Json, JsonObject, mapping_at
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.dotted_keys import COMPONENT_KEYS

ID_LENGTH = 10  # hex digits
FIRST_REVISION = 1

_TRACE = {**dict.fromkeys(("measures", "column", "unit", "sha256", "mean")), "format": "auto", "start": "0 us"}
DEFAULTS: dict[str, dict[str, object]] = {
    "link": {
        **dict.fromkeys(("bandwidth", "up", "down", "loss_burst", "queue", "standard", "efficiency", "aggregation")),
        "trace": None,
        "shaped": True,
        "latency": "0 us",
        "jitter": "0 us",
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
