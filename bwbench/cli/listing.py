"""``bwbench list``: what can be named in an experiment file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from bwbench.base.errors import EXIT_OK, ConfigError
from bwbench.cli.options import option
from bwbench.cli.output import new_table, print_json, size, stderr, stdout

if TYPE_CHECKING:
    from bwbench.base.registry import Entry, Registry
    from bwbench.experiment.plan.sending import NamedTraffic

NUM_PARAMETERS, NUM_NODES = 1_000_000, 4


def list_(
    *,
    kind: Annotated[
        str,
        typer.Argument(
            help="algorithms, collectives, compressions, models, datasets, optimizers, partitions or figures.",
            show_default=False,
        ),
    ],
    json_: Annotated[bool, option("Print JSON, with every option and its default.", "--json")] = False,
    parameters: Annotated[
        int | None,
        option(
            f"Size of the model for the bytes: a square matrix and a vector of the rest. [{NUM_PARAMETERS:,}]",
            min=1,
            show_default=False,
        ),
    ] = None,
    nodes: Annotated[
        int | None, option(f"Nodes that bytes are told for. [{NUM_NODES}]", min=2, show_default=False)
    ] = None,
) -> int:
    """List the names that an experiment file may use, built-in ones and those of installed plugins.

    Algorithms come with the payload that the busiest node sends in one step, by their default options.
    """
    from bwbench.base.explain import nearest
    from bwbench.base.registry import REGISTRIES  # entry points: importlib.metadata takes 10 ms

    if kind not in REGISTRIES:
        raise ConfigError(f"list {kind!r}: no such kind.{nearest(kind, REGISTRIES)} Known: {', '.join(REGISTRIES)}")
    of_algorithms = kind == "algorithms"
    if not of_algorithms and (parameters is not None or nodes is not None):
        raise ConfigError(f"list {kind}: --parameters and --nodes are about what algorithms send; leave them out")
    registry = REGISTRIES[kind]
    if of_algorithms:
        _list_algorithms(registry, parameters or NUM_PARAMETERS, nodes or NUM_NODES, as_json=json_)
    elif json_:
        print_json([_content(entry, registry) for entry in registry])
    else:
        table = new_table("name", "summary")
        for entry in registry:
            table.add_row(entry.name, entry.summary)
        stdout().print(table)
    return EXIT_OK


def _list_algorithms(registry: Registry, num_parameters: int, num_nodes: int, *, as_json: bool) -> None:
    """Presets, then the algorithms that are none, each with what it sends."""
    from bwbench.experiment.config.method_names import PRESETS

    others = [entry for entry in registry if entry.name not in PRESETS]
    about = {preset.name: preset.summary for preset in PRESETS.values()} | {one.name: one.summary for one in others}
    if as_json:
        axes = ("algorithm", "collective", "compression")
        contents: list[dict[str, object]] = [
            {"name": one.name, "summary": one.summary, "preset": dict(zip(axes, one.axes, strict=True))}
            for one in PRESETS.values()
        ]
        contents += [_content(entry, registry) for entry in others]
        targets: dict[str | None, str] = {entry.name: entry.target for entry in registry}
        for content, sent in zip(contents, _all_sent(about, num_parameters, num_nodes), strict=True):
            content |= {
                "algorithm": (algorithm := getattr(sent, "algorithm", None)),
                "class": targets.get(algorithm),
                **{name: getattr(sent, name, None) for name in ("collective", "codec", "payload_bytes_per_rank")},
                "num_parameters": num_parameters,
                "num_nodes": getattr(sent, "num_nodes", num_nodes),
            }
        print_json(contents)
        return
    bytes_column = f"sent a step ({num_parameters:,} parameters, {num_nodes} nodes)"
    table = new_table("name", bytes_column, "algorithm x collective x codec", "summary", right=(bytes_column,))
    for (name, summary), sent in zip(about.items(), _all_sent(about, num_parameters, num_nodes), strict=True):
        point = (sent.algorithm, sent.collective, sent.codec) if sent else ("", "", "")
        payload = size(sent.payload_bytes_per_rank if sent else None)
        table.add_row(name, payload, " x ".join(part or "?" for part in point), summary)
    stdout().print(table)


def _content(entry: Entry, registry: Registry) -> dict[str, object]:
    """A name with all that is said of it as JSON."""
    content: dict[str, object] = {"name": entry.name, "summary": entry.summary}
    if entry.provider != "bwbench":
        content["provider"] = entry.provider
    if registry.kind != "figure":  # figures take no options, and importing them is slow
        content["options"] = _options(entry, registry)
    return content


def _all_sent(names: Iterable[str], num_parameters: int, num_nodes: int) -> Iterator[NamedTraffic | None]:
    """What each sends by its default options; None where a broken package does not tell."""
    from bwbench.experiment.plan.sending import named_traffic

    for name in names:
        try:
            yield named_traffic(name, num_parameters, num_nodes)
        except Exception as error:  # a package that somebody installed may be broken in any way; the others are fine
            stderr().print(f"{name!r} cannot be asked what it sends: {type(error).__name__}: {error}")
            yield None


def _options(entry: Entry, registry: Registry) -> list[dict[str, object]] | None:
    from bwbench.base.component import options_of

    try:
        found = options_of(registry.load(entry.name).Config)
    except Exception as error:  # a package that somebody installed may be broken in any way; the others are fine
        stderr().print(f"{registry.kind} {entry.name!r} cannot be loaded: {type(error).__name__}: {error}")
        return None
    return [
        {"name": option.name, "default": option.default, "required": option.required, "meaning": option.meaning}
        for option in found
    ]
