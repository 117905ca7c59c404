"""Kin: configurations whose replicas learn alike, because they compute the same mean up to rounding.

Kin share one search for a rate, and may be compared seed by seed: what differs between them is how long a step takes.
Which arms are kin is what algorithms, collectives and codecs declare (``methods.roles``), never a list of names.
"""

from __future__ import annotations

from pydantic import BaseModel

from bwbench.base.plain_data import Json, JsonObject, canonical, list_at, mapping_at
from bwbench.methods.roles import standing_by_name

_METHOD = ("algorithm", "collective", "compression")
_WORKLOAD = ("model", "dataset", "nodes", "batch_size", "accumulate")


def kin_key(config: BaseModel | JsonObject) -> str:
    """Equal for configurations that compute the same mean up to rounding, but for their learning rate and seed.

    What counts: the mean, or the whole method where its components declare none; model, data set with its partition,
    nodes, batch size and ``accumulate``; the optimizer with all options but its rate; an average of weights whose
    metrics count. What does not: link, clock, limits, evaluations, target, seed, launcher. Kin at unequal rates are
    kin, and do not learn alike.

    Args:
        config: of a cell, resolved: a ``CellConfig``, or what cell.json holds. Nothing that a record names is imported
            but components that are registered; one that is not known makes a method that is nobody's kin.
    """
    content: JsonObject = config if isinstance(config, dict) else config.model_dump(mode="json", by_alias=True)
    optimizer = {key: value for key, value in mapping_at(content, "optimizer").items() if key != "lr"}
    workload = {key: content.get(key) for key in _WORKLOAD}
    average = mapping_at(content, "weight_average")
    scored = {"weight_average": average} if average.get("counts") == "averaged" else {}
    return canonical({**workload, **scored, "method": _method(content), "optimizer": optimizer})


def _method(content: JsonObject) -> Json:
    codecs = list_at(content, "compression") or ["none"]
    standing = standing_by_name(
        _name(content.get("algorithm")), _name(content.get("collective")), [_name(codec) for codec in codecs]
    )
    return standing.kinship or [content.get(key) for key in _METHOD]


def _name(component: Json) -> str:
    return str(component.get("name", "")) if isinstance(component, dict) else str(component or "")
