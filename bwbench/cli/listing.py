"""``bwbench list``: what can be named in an experiment file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bwbench.registry import Entry, Registry


def list_(
    kind: Annotated[
        str,
        typer.Argument(
            help="algorithms, collectives, compressions, models, datasets, optimizers, partitions or figures.",
            show_default=False,
        ),
    ],
    json_: Annotated[bool, typer.Option("--json", help="Print JSON, with every option and its default.")] = False,
) -> int:
    """List the names that an experiment file may use, built-in ones and those of installed plugins."""
    from bwbench.cli.output import new_table, print_json, stdout
    from bwbench.config.explain import nearest
    from bwbench.config.presets import PRESETS
    from bwbench.errors import EXIT_OK, ConfigError
    from bwbench.registry import REGISTRIES

    if kind not in REGISTRIES:
        raise ConfigError(f"list {kind!r}: no such kind.{nearest(kind, REGISTRIES)} Known: {', '.join(REGISTRIES)}")
    registry = REGISTRIES[kind]
    presets = PRESETS if kind == "algorithms" else {}
    rows: list[dict[str, Any]] = [
        {"name": preset.name, "summary": preset.summary, "preset": _axes(preset.axes)} for preset in presets.values()
    ]
    rows += [_row(entry, registry, json_) for entry in registry if entry.name not in presets]
    if json_:
        print_json(rows)
        return EXIT_OK
    table = new_table("name", "summary")
    for row in rows:
        axes = f" ({' x '.join(row['preset'].values())})" if "preset" in row else ""
        table.add_row(row["name"], row["summary"] + axes)
    stdout().print(table)
    return EXIT_OK


def _axes(axes: tuple[str, str, str]) -> dict[str, str]:
    return dict(zip(("algorithm", "collective", "compression"), axes, strict=True))


def _row(entry: Entry, registry: Registry, with_options: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"name": entry.name, "summary": entry.summary}
    if entry.provider != "bwbench":
        row["provider"] = entry.provider
    if with_options and registry.kind != "figure":  # figures take none, and importing them is slow
        row["options"] = _options(entry, registry)
    return row


def _options(entry: Entry, registry: Registry) -> list[dict[str, Any]] | None:
    from bwbench.cli.output import stderr
    from bwbench.config.options import options_of

    try:
        found = options_of(registry.load(entry.name).Config)
    except Exception as error:  # a package that somebody installed may be broken in any way; the others are fine
        stderr().print(f"{registry.kind} {entry.name!r} cannot be loaded: {type(error).__name__}: {error}")
        return None
    return [
        {"name": option.name, "default": option.default, "required": option.required, "meaning": option.meaning}
        for option in found
    ]
