"""docs/results-format.md and the schema of the records say the same."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest
from pydantic import BaseModel

from bwbench.records import schema
from bwbench.records.schema import documents, events, link_json, published

PAGE = Path(__file__).parents[3] / "docs" / "results-format.md"
SECTIONS: dict[str, tuple[type[BaseModel], ...]] = {
    "plan.json": (schema.PlanRecord,),
    "cell.json": (schema.CellRecord,),
    "status.json": (schema.Status,),
    "composed.json": (schema.Composed,),
    "attempt-n/environment.json": (schema.Environment,),
    "attempt-n/link.json": (schema.LinkRecord,),
    "attempt-n/rank&lt;r&gt;.jsonl": (
        schema.Start, schema.Step, schema.Evaluation, schema.Resume, schema.RankError, schema.End,
    ),
    "attempt-n/checkpoint-&lt;step&gt;/": (schema.CheckpointHead,),
    "cells.jsonl.gz: published records": (schema.PublishedHead, schema.Digest),
}  # fmt: skip
# Told in the section of the record that they come from.
ELSEWHERE = {"composed.json": {"link", "environment"}, "cells.jsonl.gz: published records": {"plan", "ledger", "curve"}}


def section(title: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the page has no section {title!r}"
    return found[1]


def named(text: str) -> set[str]:
    """Names in backticks, those inside of ``{id, slug}`` too."""
    return {name for code in re.findall(r"`([^`]*)`", text) for name in re.findall(r"[A-Za-z_]\w*", code)}


def parts(annotation: object) -> list[type[BaseModel]]:
    """Models inside of an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in typing.get_args(annotation) for model in parts(inner)]


def fields(model: type[BaseModel], elsewhere: set[str], seen: set[type[BaseModel]]) -> set[str]:
    """Names of its fields and those of its parts, as they stand in JSON."""
    if model in seen:
        return set()
    seen.add(model)
    found = set()
    for name, about in model.model_fields.items():
        found.add(about.alias or name)
        if name not in elsewhere:
            for part in parts(about.annotation):
                found |= fields(part, elsewhere, seen)
    return found


@pytest.mark.parametrize("title", SECTIONS)
def test_every_field_is_told_and_none_that_is_not_there(title: str) -> None:
    text, elsewhere = section(title), ELSEWHERE.get(title, set())
    known: set[str] = set()
    for model in SECTIONS[title]:
        known |= fields(model, elsewhere, set())
    # Of every file; of every event; the last three by their own names.
    untold = {"schema", "event", "metrics", "test", "beside"}
    missing = known - named(text) - untold
    assert not missing, f"{title} does not tell of {sorted(missing)}"
    rows = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    told = {name for row in rows for name in named(row)}
    if title.startswith("cells"):
        return  # its table has names of files
    assert told <= known, f"{title} tells of {sorted(told - known)}, which the schema does not have"


def test_every_record_has_a_section() -> None:
    """And every field a type: no record is left out of this test."""
    covered: set[type[BaseModel]] = set()
    for models in SECTIONS.values():
        for model in models:
            fields(model, set(), covered)
    for module in (documents, events, link_json, published):
        for model in vars(module).values():
            if isinstance(model, type) and issubclass(model, schema.Record) and model.__module__ == module.__name__:
                assert any(issubclass(one, model) for one in covered), model
