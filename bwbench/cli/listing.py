"""``bwbench list``: what can be named in an experiment file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bwbench.base.registry import Entry, Registry

NUM_PARAMETERS, NUM_NODES = 1_000_000, 4


def list_(
    kind: Annotated[
        str,
        typer.Argument(
            help="algorithms, collectives, compressions, models, datasets, optimizers, partitions or figures.",
            show_default=False,
        ),
    ],
    json_: Annotated[bool, typer.Option("--json", help="Print JSON, with every option and its default.")] = False,
    parameters: Annotated[
        int | None,
        typer.Option(
            help=f"Size of the model for the bytes: a square matrix and a vector of the rest. [{NUM_PARAMETERS:,}]",
            min=1,
            show_default=False,
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help=f"Nodes that bytes are told for. [{NUM_NODES}]", min=2, show_default=False)
    ] = None,
) -> int:
    """List the names that an experiment file may use, built-in ones and those of installed plugins.

    Algorithms come with the payload that the busiest node sends in one step, by their default options.
    """
    from bwbench.base.errors import EXIT_OK, ConfigError
    from bwbench.base.explain import nearest
    from bwbench.base.registry import REGISTRIES
    from bwbench.cli.output import new_table, print_json, size, stdout
    from bwbench.experiment.config.presets import PRESETS

    if kind not in REGISTRIES:
        raise ConfigError(f"list {kind!r}: no such kind.{nearest(kind, REGISTRIES)} Known: {', '.join(REGISTRIES)}")
    of_algorithms = kind == "algorithms"
    if not of_algorithms and (parameters is not None or nodes is not None):
        raise ConfigError(f"list {kind}: --parameters and --nodes are about what algorithms send; leave them out")
    registry = REGISTRIES[kind]
    presets = PRESETS if of_algorithms else {}
    rows: list[dict[str, Any]] = [
        {"name": preset.name, "summary": preset.summary, "preset": _axes(preset.axes)} for preset in presets.values()
    ]
    rows += [_row(entry, registry, json_) for entry in registry if entry.name not in presets]
    if of_algorithms:
        num_parameters, num_nodes = parameters or NUM_PARAMETERS, nodes or NUM_NODES
        rows = [{**row, **_traffic(row["name"], registry, num_parameters, num_nodes)} for row in rows]
    if json_:
        print_json(rows)
        return EXIT_OK
    if not of_algorithms:
        table = new_table("name", "summary")
        for row in rows:
            table.add_row(row["name"], row["summary"])
    else:
        bytes_column = f"sent a step ({num_parameters:,} parameters, {num_nodes} nodes)"
        table = new_table("name", bytes_column, "algorithm x collective x codec", "summary", right=(bytes_column,))
        for row in rows:
            axes = " x ".join((row["algorithm"] or "?", row["collective"] or "?", row["codec"] or "?"))
            table.add_row(row["name"], size(row["payload_bytes_per_rank"]), axes, row["summary"])
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


def _traffic(name: str, registry: Registry, num_parameters: int, num_nodes: int) -> dict[str, Any]:
    """Class, axes and bytes of a preset or an algorithm; None for what a broken package does not tell."""
    from bwbench.cli.output import stderr
    from bwbench.experiment.plan.sending import named_traffic

    targets = {entry.name: entry.target for entry in registry}
    try:
        found = named_traffic(name, num_parameters, num_nodes)
    except Exception as error:  # a package that somebody installed may be broken in any way; the others are fine
        stderr().print(f"{name!r} cannot be asked what it sends: {type(error).__name__}: {error}")
        told: dict[str, Any] = dict.fromkeys(("algorithm", "class", "collective", "codec", "payload_bytes_per_rank"))
        return {**told, "num_parameters": num_parameters, "num_nodes": num_nodes}
    return {
        "algorithm": found.algorithm,
        "class": targets[found.algorithm],
        "collective": found.collective,
        "codec": found.codec,
        "payload_bytes_per_rank": found.payload_bytes_per_rank,
        "num_parameters": num_parameters,
        "num_nodes": found.num_nodes,
    }


def _options(entry: Entry, registry: Registry) -> list[dict[str, Any]] | None:
    from bwbench.base.component import options_of
    from bwbench.cli.output import stderr

    try:
        found = options_of(registry.load(entry.name).Config)
    except Exception as error:  # a package that somebody installed may be broken in any way; the others are fine
        stderr().print(f"{registry.kind} {entry.name!r} cannot be loaded: {type(error).__name__}: {error}")
        return None
    return [
        {"name": option.name, "default": option.default, "required": option.required, "meaning": option.meaning}
        for option in found
    ]
