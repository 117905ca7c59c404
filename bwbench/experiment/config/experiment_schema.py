"""The JSON schema of experiment files, for editors: every key, every default, every component with its options.

It is made from the same models that check a file, with the built-in components only, when the package is built
(``setup.py``) or by ``python -m bwbench.experiment.config.experiment_schema [FILE]``. What depends on several keys at
once only the program itself can check.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bwbench.base.component import attribute_meanings, options_of
from bwbench.base.registry import PARTITIONS, Entry, Registry
from bwbench.base.units import BANDWIDTH, DURATION, MEMORY, SAMPLES
from bwbench.experiment.config.cell_config import LEFT_OUT, MAX_SEED, PARTITION_LEFT_OUT, CellConfig
from bwbench.experiment.config.experiment import MAX_REPEATS, MODES, TimingConfig, UntilKnown, WholeConfig
from bwbench.experiment.config.hosts import MOST_WORKERS, Host
from bwbench.experiment.config.matrix import CELL_KEYS, COMPONENT_KEYS, SECTIONS
from bwbench.experiment.config.method_names import PRESETS
from bwbench.experiment.config.tune_block import LEAST_RATES
from bwbench.network.link.link import SHORTHANDS
from bwbench.network.link.sites import published_regions

Schema = dict[str, Any]  # as open as JSON Schema itself

_DIMENSIONS = {dimension.name: dimension for dimension in (BANDWIDTH, DURATION, MEMORY, SAMPLES)}
_OWN: dict[str, Schema] = {
    "name": {"type": "string", "pattern": r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$", "maxLength": 100},
    "plugins": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}], "default": []},
    "mode": {"enum": list(MODES), "default": MODES[0]},
    "regions": {
        "anyOf": [
            {"type": "array", "items": {"enum": list(published_regions())}, "minItems": 2, "uniqueItems": True},
            {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}, "minProperties": 2},
        ],
        "description": "Sites by the names of regions of a cloud, with the paths measured between them.",
    },
    "preset": {
        "type": "string",
        "description": "Name of a link ('bwbench link presets' lists them), or FILE:NAME; other keys go on top.",
    },
}
_TUNE: Schema = {
    "type": "object",
    "properties": {
        "rate": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": LEAST_RATES}
    },
    "additionalProperties": {"type": "array", "minItems": 1},
}
_MEANINGS = {
    "name": "Name of the experiment, and of its folder below results/.",
    "nodes": "Number of nodes that train together.",
    "link": "What the network is asked to be; 'unshaped' leaves it as it is.",
    "model": "What is trained.",
    "dataset": "What it is trained on, and how that is dealt out to the nodes.",
    "batch_size": "Samples of one node in one micro-step.",
    "accumulate": "Micro-steps of one optimizer step.",
    "algorithm": "When replicas agree and on what; or a preset, which sets collective and compression as well.",
    "collective": "How an average is formed; 'auto' chooses by the compression.",
    "compression": "What goes on the wire.",
    "optimizer": "How parameters are updated.",
    "weight_average": "What of the weights' past is evaluated beside them, and which of both counts.",
    "compute": "How much computing a node may do.",
    "evaluate": "How often to evaluate, and when on the test split as well; the same for all arms.",
    "target": "The metric on the validation split that counts as arrived, e.g. {accuracy: 0.95}.",
    "targets": "Several targets in place of one, e.g. [{accuracy: 0.80}, {accuracy: 0.87}].",
    "stop": "'target' ends at the first evaluation that meets all targets, 'limit' goes on to the limit.",
    "limit": "When training ends although the target was not reached.",
    "repeats": "Trainings of each cell; repeat r has the seed + r. {until: 15 %} adds as many as that needs.",
    "seed": "Of the first repeat.",
    "dilation": "Slow motion: seconds of the machine to one of the training, such as 4; 'auto' takes what it needs.",
    "shrink": "Of a model of shapes: parameters and the link's rates divided by it, such as 4; 'auto' fits the memory.",
    "launcher": "Who starts the workers: 'local' on this machine, 'ssh' on 'hosts', 'external' torchrun or Slurm.",
    "hosts": "Machines for launcher: ssh, like anna@192.168.1.10, as mappings, or the name of a file with them.",
    "per_host": "Ranks on each of the hosts that does not say 'workers' itself.",
    "plugins": "Python files that register components; paths are relative to this file.",
    "mode": "'composed' puts times to accuracy together from runs without a link and short timing runs on it.",
    "whole": "Which cells run whole as well where the mode is 'composed', to show its error.",
    "timing": "How often the steps of a composed cell are timed on its link.",
    "tune": "Rates to begin the search with, and options of methods searched together with the rate, by their names.",
    "matrix": "Values to compare, by dotted key: all combinations. 'a, b': [[1, 2], …] lets keys vary together.",
    "exclude": "Points of the matrix to leave out: those where all keys of an entry match.",
}


def build_schema() -> Schema:
    """The schema as plain data (JSON Schema, draft 2020-12)."""
    definitions: Schema = {key: _section(model) for key, model in SECTIONS.items() if key != "target"}
    del definitions["link"]["properties"]["shaped"]  # 'unshaped' says it
    of_link = {**{key: _OWN[key] for key in SHORTHANDS}, **definitions["link"]["properties"]}
    definitions["link"]["properties"] = {**of_link, "sites": _sites(of_link["sites"])}
    definitions["link"] = {"anyOf": [{"const": "unshaped"}, definitions["link"]]}
    definitions["target"] = {
        "anyOf": [
            {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1, "maxProperties": 1},
            _section(SECTIONS["target"]),
        ]
    }
    several = {"type": "array", "items": {"$ref": "#/$defs/target"}, "minItems": 2, "uniqueItems": True}
    definitions["targets"] = several
    definitions["partition"] = _component(PARTITIONS)
    for key, registry in COMPONENT_KEYS.items():
        extra = {"partition": {"$ref": "#/$defs/partition", "default": PARTITION_LEFT_OUT}} if key == "dataset" else {}
        definitions[key] = _component(registry, extra)
    definitions["collective"]["anyOf"].insert(0, {"const": "auto", "description": "chosen by the compression"})
    definitions["algorithm"]["anyOf"] += _presets(definitions["algorithm"])
    definitions["optimizer"]["anyOf"].append(_tuned())
    one = definitions["compression"]
    chain = {"type": "array", "items": {"$ref": "#/$defs/codec"}, "minItems": 1}
    definitions |= {"codec": one, "compression": {"anyOf": [{"$ref": "#/$defs/codec"}, chain]}}
    host = {"anyOf": [{"type": "string"}, _section(Host)]}
    cell_keys = {key: _cell_key(key, definitions) for key in CELL_KEYS}
    properties = {
        "name": _OWN["name"],
        **cell_keys,
        "repeats": {
            "anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_REPEATS, "default": 1}, _section(UntilKnown)]
        },
        **{key: _OWN[key] for key in ("plugins", "mode")},
        "whole": _section(WholeConfig),
        "timing": _section(TimingConfig),
        "hosts": {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": host}]},
        "per_host": {"type": "integer", "minimum": 1, "maximum": MOST_WORKERS, "default": 1},
        "tune": _TUNE,
        "matrix": _matrix(cell_keys, definitions),
        "exclude": {"type": "array", "items": {"type": "object", "minProperties": 1}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "bwbench experiment",
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "properties": {key: {"description": _MEANINGS[key], **schema} for key, schema in properties.items()},
        "$defs": definitions,
    }


def _cell_key(key: str, definitions: Schema) -> Schema:
    if key in definitions:
        return {"$ref": f"#/$defs/{key}", **({"default": LEFT_OUT[key]} if key in LEFT_OUT else {})}
    if key == "seed":
        return {"type": "integer", "minimum": 0, "maximum": MAX_SEED, "default": 0}
    own = CellConfig.model_json_schema(by_alias=True, mode="validation")["properties"][key]
    plain = {name: value for name, value in own.items() if name != "title"}
    if key not in ("dilation", "shrink"):
        return plain
    return {"anyOf": [{"const": "auto"}, _without_default(plain)], "default": plain["default"]}


def _matrix(cell_keys: Schema, definitions: Schema) -> Schema:
    head = "|".join(CELL_KEYS)
    key = rf"({head})(\.[A-Za-z0-9_-]+)*"
    axes = dict(cell_keys)
    for section in ("link", "compute", "evaluate", "limit"):
        inside = definitions[section].get("properties") or definitions[section]["anyOf"][1]["properties"]
        axes |= {f"{section}.{name}": schema for name, schema in inside.items()}
    return {
        "type": "object",
        "properties": {
            name: {"type": "array", "items": _without_default(schema), "minItems": 1} for name, schema in axes.items()
        },
        "patternProperties": {rf"^\s*{key}(\s*,\s*{key})*\s*$": {"type": "array", "minItems": 1}},
        "additionalProperties": False,
    }


def _without_default(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name != "default"}


def _tuned() -> Schema:
    """A table in place of an optimizer, by its file or with what was tuned."""
    file: Schema = {"type": "string", "description": "Relative to this file.", "minLength": 1}
    beside = {"description": "What is tuned, without lr.", "$ref": "#/$defs/optimizer"}
    named = {"type": "object", "properties": {"file": file, "optimizer": beside}, "required": ["file"]}
    schema = _keyed("tuned", {"anyOf": [file, {**named, "additionalProperties": False}]})
    return {"description": "The optimizer that 'bwbench tune' found for the arm.", **schema}


def _presets(algorithm: Schema) -> list[Schema]:
    """Each preset as a name, and with the options of its algorithm."""
    with_options = {
        branch["required"][0]: branch["properties"][branch["required"][0]]
        for branch in algorithm["anyOf"]
        if branch.get("required", ["name"]) != ["name"]
    }
    found: list[Schema] = []
    for preset in PRESETS.values():
        if preset.name in with_options:
            continue
        found.append({"const": preset.name, "description": f"{preset.summary} ({' x '.join(preset.axes)})"})
        found.append(_keyed(preset.name, with_options[preset.algorithm]))
    return found


def _component(registry: Registry, extra: Mapping[str, Schema] | None = None) -> Schema:
    """All spellings of all built-in components of one kind."""
    entries = [entry for entry in registry if entry.provider == "bwbench"]
    names = [{"const": entry.name, "description": entry.summary} for entry in entries]
    return {"anyOf": [*names, *(branch for entry in entries for branch in _spellings(entry, registry, extra or {}))]}


def _spellings(entry: Entry, registry: Registry, extra: Mapping[str, Schema]) -> list[Schema]:
    options = _section(registry.load(entry.name).Config)
    options["properties"] |= extra
    named = {**options, "properties": {"name": {"const": entry.name}, **options["properties"]}}
    named["required"] = ["name", *options.get("required", [])]
    forms: list[Schema] = [options, {"type": "null"}]
    first = next(iter(options["properties"].values()), None)
    if first is not None and not extra:
        forms.append(_without_default(first))
    keyed = _keyed(entry.name, {"anyOf": forms})
    if extra:
        keyed["properties"] |= extra
    return [named, keyed]


def _keyed(name: str, options: Schema) -> Schema:
    return {"type": "object", "properties": {name: options}, "required": [name], "additionalProperties": False}


def _section(model: type[BaseModel]) -> Schema:
    """A mapping with the keys of a model, with their meaning, defaults as written in YAML, and units as patterns."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    schema = _inlined(schema, {name: _nested(part) for name, part in schema.pop("$defs", {}).items()})
    meanings = attribute_meanings(model)
    names = {field.alias or name: name for name, field in model.model_fields.items()}
    defaults = {option.name: option.default for option in options_of(model) if not option.required}
    properties = {}
    for key, value in schema.get("properties", {}).items():
        meaning = meanings.get(names[key])
        described = {"description": meaning} if meaning else {}
        properties[key] = {**described, **_plain(value), **({"default": defaults[key]} if key in defaults else {})}
    section: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**section, "required": schema["required"]} if "required" in schema else section


def _sites(listed: Schema) -> Schema:
    """A list of sites or of their names, or a mapping by names."""
    site = listed["items"]
    unnamed = {key: value for key, value in site.items() if key != "required"}
    unnamed["properties"] = {key: value for key, value in site["properties"].items() if key != "name"}
    named = {"type": "object", "additionalProperties": {"anyOf": [unnamed, {"type": "null"}]}, "minProperties": 2}
    names = {**listed, "items": {"anyOf": [site["properties"]["name"], site]}}
    about: Schema = {key: names.pop(key) for key in ("description", "default") if key in names}
    return {**about, "anyOf": [named, names]}


def _nested(part: Schema) -> Schema:
    """A mapping inside a section; what may also be written as a name says so in ``short_form``."""
    part = {key: value for key, value in part.items() if key != "description"}
    short = part.pop("short_form", None)
    return part if short is None else {"anyOf": [*short, part]}


def _inlined(value: Any, definitions: Mapping[str, Schema]) -> Any:
    """With each reference replaced by what it refers to."""
    if isinstance(value, list):
        return [_inlined(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref", "").rpartition("/")[2] if isinstance(value.get("$ref"), str) else ""
    if reference in definitions:
        beside = {key: item for key, item in value.items() if key != "$ref"}
        return {**_inlined(definitions[reference], definitions), **beside}
    return {key: _inlined(item, definitions) for key, item in value.items()}


def _plain(value: Any) -> Any:
    """Without pydantic's titles, and with a pattern where a unit is due."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    plain = {key: _plain(item) for key, item in value.items() if key not in ("title", "default")}
    dimension = _DIMENSIONS.get(value.get("title", ""))
    if dimension is not None and value.get("type") == "string":
        units = "|".join(re.escape(unit).replace("/", "\\/") for unit in dimension.factors)
        plain["pattern"] = rf"^\s*\+?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*({units})\s*$"
    return plain


def as_text(schema: Schema) -> str:
    """The schema as its file holds it."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Write the schema to the file that is named, or print it."""
    text = as_text(build_schema())
    if not arguments:
        sys.stdout.write(text)
        return
    (file,) = arguments
    Path(file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
