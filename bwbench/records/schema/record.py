"""What every record has in common: how it is read, how it is written, and how a broken or foreign one is refused.

A record is a frozen model. Reading ignores fields that this version does not know, and is strict in those that it does:
a boolean is no number, text is no number, and NaN and infinity are none either. Writing gives the fields in the order
in which they are defined, and those alone that were given: what does not apply is absent, or null, as whoever makes
the record has it.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import AfterValidator, AllowInfNan, BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic_core import PydanticCustomError

from bwbench.base.errors import RecordError
from bwbench.base.explain import explain
from bwbench.base.plain_data import JsonObject

SCHEMA = 1  # of every file in a result folder; docs/results-format.md has the history
MOST_SAID = 3  # of what is wrong with one record: the first ones say which kind of foreign or broken it is


_LONGEST_NAME = 255  # bytes, of a file on Linux


def refused_name(name: str) -> str | None:
    """Why results may not be written under a name, which must not lead anywhere else nor hide what is printed; None
    where they may."""
    if not name.isprintable() or "/" in name or name in ("", ".", "..") or len(name.encode()) > _LONGEST_NAME:
        return f"{ascii(name[:40])} is no name that a folder may have"
    return None


def _of_a_folder(name: str) -> str:
    if (why := refused_name(name)) is not None:
        raise PydanticCustomError("name", "{message}", {"message": why})
    return name


Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict(), Field(ge=-(2**63), lt=2**63)]  # what a float can stand for, and a table can hold
FolderName = Annotated[str, Strict(), AfterValidator(_of_a_folder)]
LARGEST = 1e100  # of what is measured, so that sums and squares stay finite; fp32 ends at 1e38
Number = Annotated[float, Strict(), AllowInfNan(False), Field(ge=-LARGEST, le=LARGEST)]


def finite(value: float | None) -> float | None:
    """What is recorded of a number that was measured or computed; None for NaN and infinity, which JSON cannot say."""
    return value if value is not None and abs(value) <= LARGEST else None


def _known(schema: int) -> int:
    if schema > SCHEMA:
        text = f"schema {schema} is newer than this bwbench reads ({SCHEMA}); use a newer bwbench"
        raise PydanticCustomError("newer", "{message}", {"message": text})
    return schema


SchemaNumber = Annotated[Whole, Field(ge=0), AfterValidator(_known)]

R = TypeVar("R", bound="Record")


class Record(BaseModel):
    """Base of all records and of their parts."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)

    def to_json(self) -> JsonObject:
        """As it is written: the fields that were given, in order."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class Versioned(Record):
    """A record that says which version of the format it is of."""

    schema_: SchemaNumber = Field(SCHEMA, alias="schema")

    def model_post_init(self, _: object) -> None:
        """The version is always written."""
        self.__pydantic_fields_set__.add("schema_")


def parse_content(model: type[R], content: object, where: object, remedy: str) -> R:
    """A record out of what was JSON, and has been read already.

    Args:
        where: file that it stands in, for messages; ``remedy`` is what to do where it does not fit.

    Raises RecordError: ``where: field: what is wrong; remedy``.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise refusal(error, model, where, remedy) from None


def refusal(error: ValidationError, model: type[BaseModel], where: object, remedy: str) -> RecordError:
    """The one way to refuse a record: which field of which file is wrong in what way, and what to do."""
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        said = str(first["msg"]).removeprefix("Invalid JSON: ")
        return RecordError(f"{where}: not readable as JSON ({said}); {remedy}")
    found = explain(error, model)
    if newer := [message for _, message in found if message.startswith("schema ")]:
        return RecordError(f"{where}: {newer[0]}")
    said = "; ".join(f"{_field_name(loc)}: {message}" if loc else message for loc, message in found[:MOST_SAID])
    more = f"; and {len(found) - MOST_SAID} more" if len(found) > MOST_SAID else ""
    return RecordError(f"{where}: {said}{more}; {remedy}")


def _field_name(loc: tuple[int | str, ...]) -> str:
    """``achieved_before.pairs[2].src``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".")
