"""Numbers of nodes as they stand in YAML and JSON, where keys are text and tuples are lists."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field


def as_tuple(value: Any) -> Any:
    """A list as a tuple; anything else as it is, for the type to refuse."""
    return tuple(value) if isinstance(value, list) else value


def _as_number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


NodeNumber = Annotated[int, Field(ge=0), BeforeValidator(_as_number)]
NodeNumbers = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(as_tuple)]
