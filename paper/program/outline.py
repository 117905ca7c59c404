"""outline.yaml: the title, and the sections in their order, each with the experiments that it cannot do without."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from bwbench.base.errors import ConfigError, Problem


class Section(BaseModel):
    """One file of prose.

    Attributes:
        file: below the folder of the paper.
        experiments: all of these need records, else the section is left out.
        any_of: at least one of these needs records.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    experiments: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()

    def lacks(self, there: frozenset[str]) -> list[str]:
        """Experiments without records that keep the section out; none where it can stand."""
        missing = [name for name in self.experiments if name not in there]
        if not missing and self.any_of and not set(self.any_of) & there:
            missing = list(self.any_of)
        return missing


class Outline(BaseModel):
    """The paper as a whole.

    Attributes:
        first_section: the number that the first section has.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    subtitle: str = ""
    first_section: int = 1
    bibliography: str = "references.bib"
    claims: str = "claims.yaml"
    sections: tuple[Section, ...]


def load_outline(folder: Path) -> Outline:
    """The outline of the paper in ``folder``; raises ConfigError where it is not there or wrong."""
    path = folder / "outline.yaml"
    try:
        outline = Outline.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(Problem(f"not readable as the outline of a paper: {error}", str(path))) from None
    missing = [section.file for section in outline.sections if not (folder / section.file).is_file()]
    if missing:
        raise ConfigError(Problem(f"no such file: {', '.join(missing)}", str(path)))
    return outline
