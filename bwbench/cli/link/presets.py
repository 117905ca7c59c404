"""``bwbench link presets``: links with a name."""

from __future__ import annotations

from typing import Annotated

import typer

from bwbench.base.errors import EXIT_OK


def presets(
    sources: Annotated[bool, typer.Option("--sources", help="Say where the figures of each come from.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """List the links that have a name: for --preset here, and 'link: {preset: NAME}' in an experiment.

    Keep your own in a YAML file of the same form, and name them '--preset path/to/file.yaml:NAME'.
    """
    from bwbench.cli.output import print_json
    from bwbench.cli.plain_table import plain_table

    rows = preset_table()
    if json_:
        print_json(rows)
    elif sources:
        print("\n\n".join(f"{row['name']}: {row['summary']}\n  {row['link']}\n  {row['source']}" for row in rows))
    else:
        print("\n".join(plain_table(("name", "what", "link"), [(r["name"], r["summary"], r["link"]) for r in rows])))
    return EXIT_OK


def preset_table() -> list[dict[str, str]]:
    """A row for each built-in preset: ``name``, ``summary``, ``link`` (in words) and ``source``."""
    from bwbench.network.link import Link
    from bwbench.network.link.named_links import named_links

    return [
        {
            "name": preset.name,
            "summary": preset.summary,
            "link": Link.model_validate(preset.link).describe(),
            "source": preset.source,
        }
        for preset in named_links(Link).values()
    ]
