"""Templates of what ``init`` writes."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def rendered(template: str, **values: object) -> str:
    """A template of ``templates/`` (named without ``.j2``) with its values filled in."""
    environment = Environment(
        loader=PackageLoader("bwbench.cli.init", "templates"),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{template}.j2").render(values)
