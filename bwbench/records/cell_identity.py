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
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from bwbench.base.plain_data import Json, JsonObject, list_at, mapping_at
from bwbench.network.link.site_network import dealt_out

ID_LENGTH = 10  # hex digits
FIRST_REVISION = 1
_COMPONENTS = ("model", "dataset", "algorithm", "collective", "optimizer")  # one each; of compression there is a chain
_ODD = (AttributeError, KeyError, TypeError, ValueError, RecursionError)  # of a configuration that is no whole one
KEYS = frozenset(  # that a recorded configuration has
    ("nodes", "link", *_COMPONENTS, "compression", "batch_size", "accumulate", "compute", "evaluate", "target")
    + ("weight_average", "targets", "stop", "limit", "seed", "dilation", "shrink", "launcher", "plugins")
)

QUEUE_BEFORE = "1 bdp"  # of a shaped link whose record names none: once the default

_TRACE = {
    **dict.fromkeys(("measures", "column", "unit", "columns", "sha256", "mean")),
    "format": "auto",
    "start": "0 us",
}
_OF_DECAY = dict.fromkeys(("decay", "decay_to", "decay_over"))
DEFAULTS: dict[str, dict[str, object]] = {
    "": {"targets": [], "dilation": 1.0, "shrink": 1.0, "weight_average": {"name": "none"}},
    "compute": {"overrides": {}, "device": "cpu", "vector_speed": 1.0},
    "evaluate": {"test": "arrivals"},
    "link": {
        **dict.fromkeys(("bandwidth", "up", "down", "loss_burst", "standard", "efficiency", "aggregation")),
        "trace": None,
        "queue": QUEUE_BEFORE,
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
        "mtu": 1500,
        "outages": [],
        "cross_traffic": [],
        "handover": None,
        "demand": None,
        "overrides": {},
        "sites": [],
        "paths": None,
        "seed": 1,
        "backend": "auto",
    },
    "link.tcp": dict.fromkeys(
        ("congestion_control", "slow_start_after_idle", "receive_buffer", "send_buffer", "rto_max")
    ),
    "link.overrides.*": dict.fromkeys(("bandwidth", "up", "down", "latency", "jitter", "loss", "queue", "trace")),
    "link.outages.*": dict.fromkeys(("every", "nodes")),
    "link.sites.*": {**dict.fromkeys(("nodes", "bandwidth", "up", "down", "queue")), "latency": "0 us"},
    "link.paths": {"file": None},
    "link.trace": dict.fromkeys(("up", "down")),
    "link.overrides.*.trace": dict.fromkeys(("up", "down")),
    **{f"{link}.trace.{way}": _TRACE for link in ("link", "link.overrides.*") for way in ("up", "down")},
    **{
        f"algorithm {name}": {"bucket": None}
        for name in ("qadam", "decentralized", "low-precision-decentralized", "async")
        + ("local-sgd", "diloco", "streaming-diloco")
    },
    "algorithm eager-diloco": {"bucket": None, "period": 30, "outer_lr": 0.7, "outer_momentum": 0.9},
    "algorithm noloco": {
        "bucket": None,
        "period": 50,
        "overlap": 0,
        "outer_lr": 0.7,
        "outer_momentum": 0.5,
        "pull": 1.0,
    },
    "algorithm sparta": {"bucket": None, "period": 1, "overlap": 0, "ratio": 0.005},
    "algorithm des-loc": {"bucket": None, "period": 16, "first_moment": 3, "second_moment": 6},
    "limit": {"steps": None},
    "model shapes": {"of": "", "backward": 2 / 3, "decay": 1.0, "tail": 0.5, "norm": 1.0, "sha256": None},
    "collective ring": {"paced": True},
    "collective sharded": {"workers_per_host": 2, "across": "ring", "inside": "auto"},
    "collective hierarchical": {"sites": []},
    "collective gossip-pair": {"pairs": "shift-one"},
    "compression top-k": {"chunk": None},
    **{f"optimizer {name}": _OF_DECAY for name in ("sgd", "adam", "adamw")},
    "optimizer muon": {
        **_OF_DECAY,
        "lr": 0.02,
        "weight_decay": 0.01,
        "base_batch": None,
        "lr_scaling": "linear",
        "warmup": None,
        "flat": False,
        "momentum": 0.95,
        "nesterov": False,
        "coefficients": "muloco",
        "steps": 5,
        "scale": "spectral-norm",
        "adamw_ratio": 1.0,
        "betas": [0.9, 0.95],
        "eps": 1e-8,
    },
    **{
        f"algorithm {name}": {"bucket": None, "period": 30, "overlap": 0, "outer_lr": 0.7, "outer_momentum": 0.6}
        for name in ("muloco", "muloco-1")
    },
    "weight_average ema": {"horizon": None, "counts": "averaged"},
    "weight_average tail": {"share": 0.2, "over": None, "counts": "averaged"},
    "compression random-subset": {"ratio": 0.1, "error_feedback": True},
    "compression dct-top-k": {"k": 32, "block": 64, "error_feedback": True},
    "algorithm deco-sgd": {
        "ratio": "auto",
        "staleness": "auto",
        "window": 5,
        "least_ratio": 0.001,
        "most_ratio": 0.25,
        "most_staleness": 4,
        "ratio_cost": 0.002,
        "staleness_cost": 0.5,
    },
}
_KEYS_OF_LINK = frozenset(DEFAULTS["link"]) | {key.removeprefix("link.") for key in DEFAULTS if key.startswith("link.")}
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode  # made once: it is slow


def identity(config: BaseModel) -> str:
    """The id of a resolved configuration: the first digits of the SHA-256 of what counts of it, as canonical JSON.

    A plugin file counts by its name and by the ``__version__`` that it declares, a trace by what is in it, neither by
    the folder it lies in, so that an experiment can be copied elsewhere and still find its results.
    """
    return _hashed(what_counts(config))


def what_counts(config: BaseModel) -> JsonObject:
    """The settings that an id is made of."""
    recorded = config.model_dump(mode="json", by_alias=True)
    plugins: list[Json] = [[Path(path).name, _declared_version(Path(path))] for path in recorded["plugins"]]
    return {**_what_counts(recorded, _revision_of), "plugins": plugins}


def recorded_identity(config: JsonObject) -> str:
    """The id of a configuration as cell.json holds it, with components of the first revision and without plugins.

    Raises AttributeError, KeyError, TypeError, ValueError or RecursionError where it is no whole configuration.
    """
    return _hashed(_what_counts(config, lambda kind, name: FIRST_REVISION))


def id_problem(cell_id: str, config: JsonObject) -> str | None:
    """Why a recorded configuration cannot be the cell of this id; None where it is, or where that cannot be told.

    Nothing is imported and no file is read that the record names: of what comes from plugins nothing can be told.
    """
    if unchecked_id(config) is not None:
        return None
    try:
        found = recorded_identity(config)
        counted = _what_counts(config, _revision_of_built_in)
        if cell_id in (found, _hashed(counted), _hashed(_with_named_queue(counted, config))):
            return None
    except _NotBuiltInError:
        return None
    except _ODD as error:
        return f"config: gives no id, and not {cell_id} ({type(error).__name__}: {error})"
    return f"config: gives the id {found}, and not {cell_id}"


def _with_named_queue(counted: JsonObject, config: JsonObject) -> JsonObject:
    """What counted when ``1 bdp`` was the default: a queue that was named counted, also where it was that one."""
    link = mapping_at(counted, "link")
    named = mapping_at(config, "link").get("queue") == QUEUE_BEFORE
    return {**counted, "link": {**link, "queue": QUEUE_BEFORE}} if named else counted


def unchecked_id(config: JsonObject) -> str | None:
    """Why it cannot be told whether an id is that of a recorded configuration; None where it can be."""
    if config.get("plugins"):
        return "it names plugins, whose versions are no part of the record"
    later = [key for key in config if key not in KEYS]
    later += [f"link.{key}" for key in mapping_at(config, "link") if key not in _KEYS_OF_LINK]
    return f"it has keys of a later version ({', '.join(later)})" if later else None


def unlike(recorded: JsonObject, planned: JsonObject) -> bool:
    """Whether two configurations differ in what counts, whatever cannot be told of ids left out."""
    try:
        return recorded_identity(_told(recorded)) != recorded_identity(_told(planned))
    except _ODD:
        return True


def _told(config: JsonObject) -> JsonObject:
    link: JsonObject = {key: value for key, value in mapping_at(config, "link").items() if key in _KEYS_OF_LINK}
    return {**{key: value for key, value in config.items() if key in KEYS}, "link": link, "plugins": []}


def _hashed(counted: JsonObject) -> str:
    return hashlib.sha256(_canonical(counted).encode()).hexdigest()[:ID_LENGTH]


Revision = Callable[[str, str], int]  # of the component of that kind and name


def _what_counts(config: JsonObject, revision: Revision) -> JsonObject:
    content = _counted("", config)
    link = mapping_at(content, "link")
    if link.get("queue") is None:  # as records have it whose queue was that default; or there is no link
        link = {key: value for key, value in link.items() if key != "queue"}
    if not _has_jitter(link):  # then its kind says nothing
        link = {key: value for key, value in link.items() if key != "jitter_kind"}
    content["link"] = _of_link("link", _with_nodes_dealt_out(link, config.get("nodes")))
    for section in ("compute", "evaluate", "limit", "target"):
        if asked := mapping_at(content, section):
            content[section] = _counted(section, asked)
    if compute := mapping_at(content, "compute"):
        content["compute"] = _by_content(compute)
    for kind in (*_COMPONENTS, *({"weight_average"} & content.keys())):
        content[kind] = _of_component(kind, mapping_at(content, kind), revision)
    codecs = (codec if isinstance(codec, dict) else {} for codec in list_at(content, "compression"))
    content["compression"] = [_of_component("compression", codec, revision) for codec in codecs]
    return content


def _counted(place: str, content: JsonObject) -> JsonObject:
    """What counts of the keys at one place."""
    frozen = DEFAULTS.get(place)
    if frozen is None:
        return dict(content)
    return {key: value for key, value in content.items() if key not in frozen or value != frozen[key]}


def _of_component(kind: str, content: JsonObject, revision: Revision) -> JsonObject:
    name = str(content["name"])
    counted = _counted(f"{kind} {name}", content)
    if kind == "model" and counted.get("sha256") is not None:  # shapes from a file: known by what is in it
        counted = {key: value for key, value in counted.items() if key != "of"}
    if partition := mapping_at(counted, "partition"):
        counted["partition"] = _of_component("partition", partition, revision)
    number = revision(kind, name)
    return counted if number == FIRST_REVISION else {**counted, "revision": number}


def _revision_of(kind: str, name: str) -> int:
    from bwbench.base.registry import REGISTRIES  # inside: a list of cells has no need of it

    return int(getattr(REGISTRIES[f"{kind}s"].load(name), "revision", FIRST_REVISION))


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
        key: _of_link(f"{place}.{'*' if place.endswith('.overrides') else key}", value)
        if isinstance(value, (dict, list))
        else value
        for key, value in kept.items()
    }


def _with_nodes_dealt_out(link: JsonObject, num_nodes: Json) -> JsonObject:
    """With the number of nodes in each site, said or not: the same link either way."""
    sites = [site for site in list_at(link, "sites") if isinstance(site, dict)]
    if not sites or not isinstance(num_nodes, int) or any(site.get("nodes") is not None for site in sites):
        return link
    numbers = dealt_out(num_nodes, len(sites))
    dealt: list[Json] = [{**site, "nodes": number} for site, number in zip(sites, numbers, strict=True)]
    return {**link, "sites": dealt}


def _by_content(compute: JsonObject) -> JsonObject:
    """With the traces of step times known by what is in them, and not by the names of their files."""
    overrides = mapping_at(compute, "overrides")
    plain = {key: value for key, value in compute.items() if key != "overrides"}
    if isinstance(step_time := plain.get("step_time"), dict) and "sha256" in step_time:
        plain["step_time"] = {"sha256": step_time["sha256"]}
    nodes: JsonObject = {node: _by_content(own) if isinstance(own, dict) else own for node, own in overrides.items()}
    return {**plain, "overrides": nodes} if nodes else plain


def _has_jitter(link: JsonObject) -> bool:
    own = [override for override in mapping_at(link, "overrides").values() if isinstance(override, dict)]
    return any(settings.get("jitter") not in (None, "0 us") for settings in (link, *own))


class _NotBuiltInError(Exception):
    """A component is of another package, which a record is no reason to import."""


def _revision_of_built_in(kind: str, name: str) -> int:
    from bwbench.base.registry import REGISTRIES

    if not any(entry.name == name and entry.provider == "bwbench" for entry in REGISTRIES[f"{kind}s"]):
        raise _NotBuiltInError
    return _revision_of(kind, name)


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
