"""The command ``init``: which kind is wanted, where it goes, and what to do next."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bwbench.base.errors import EXIT_OK, ConfigError
from bwbench.cli.options import option
from bwbench.cli.output import stderr

EXPERIMENT = "experiment"
PLUGINS = ("codec", "collective", "algorithm", "model", "dataset", "figure")
_FIRST_NAME = "my_question"
_OF_EXPERIMENTS = ("nodes", "link", "latency", "medium", "data", "model", "example", "yes")


def init(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help=f"{EXPERIMENT}, {', '.join(PLUGINS[:-1])} or {PLUGINS[-1]}.")
    ] = EXPERIMENT,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help=f"Its name, as in YAML. [{_FIRST_NAME}]", show_default=False)
    ] = None,
    *,
    nodes: Annotated[int | None, option("How many train together. [4]", metavar="N", show_default=False, min=2)] = None,
    link: Annotated[
        str | None,
        option(
            "A bandwidth, or a link by its name (`bwbench link presets`). [10 Mbit/s]",
            metavar="LINK",
            show_default=False,
        ),
    ] = None,
    latency: Annotated[
        str | None, option("One way, of a link given by its bandwidth. [5 ms]", metavar="TIME", show_default=False)
    ] = None,
    medium: Annotated[
        str | None,
        option(
            "shared: one WiFi for all; switched: a link for each node. Of a link given by its bandwidth. [switched]",
            metavar="MEDIUM",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None, option("Data set (`bwbench list datasets`). [digits]", metavar="NAME", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        option("Model (`bwbench list models`). [one that fits the data]", metavar="NAME", show_default=False),
    ] = None,
    example: Annotated[
        str | None, option("Instead of all these: a copy of one of the examples.", metavar="NAME", show_default=False)
    ] = None,
    to: Annotated[
        Path | None, option("File or folder to write.", metavar="DEST", show_default="NAME.yaml, or the folder NAME")
    ] = None,
    yes: Annotated[bool, option("Ask nothing: what is not said takes its default.", "--yes", "-y")] = False,
) -> int:
    """Write a first experiment, or a plugin as a small package that can be installed.

    An experiment compares some methods on your link; on a terminal you are asked for what no option says. A plugin
    comes with its entry point, a test that holds it to the contract of its kind, and an experiment that compares it.
    Nothing that is there already is changed.
    """
    said = dict(zip(_OF_EXPERIMENTS, (nodes, link, latency, medium, data, model, example, yes or None), strict=True))
    given = [word for word in _OF_EXPERIMENTS if said[word] is not None]
    if kind in PLUGINS:
        if given:
            raise ConfigError(f"init {kind}: --{given[0]} is about an experiment; leave it out")
        if name is None:
            raise ConfigError(f"init {kind}: it needs a name: bwbench init {kind} my-{kind}")
        return _write_plugin(kind, name, to)
    if kind != EXPERIMENT:
        from bwbench.base.explain import nearest

        kinds = (EXPERIMENT, *PLUGINS)
        raise ConfigError(f"init {kind!r}: no such kind.{nearest(kind, kinds)} Allowed: {', '.join(kinds)}")
    if example is not None and (others := [word for word in given if word not in ("example", "yes")]):
        raise ConfigError(f"init --example: it is copied as it is; leave --{others[0]} out")
    from bwbench.cli.init import first_experiment

    asking = not yes and example is None and sys.stdin.isatty() and sys.stderr.isatty()
    if example is not None:
        name = name or example
        file, text = to or Path(f"{name}.yaml"), first_experiment.copied(example, name)
    else:
        name = name or _FIRST_NAME
        file = to or Path(f"{name}.yaml")
        refuse_existing(file)  # before anybody answers questions
        answers = first_experiment.Answers(nodes, link, latency, medium, data, model)
        text = first_experiment.text_of(name, answers, asking=asking)
    refuse_existing(file)
    written = first_experiment.write(file, text)
    print(file)
    for line in first_experiment.next_steps(file, written):
        stderr().print(line)
    return EXIT_OK


def refuse_existing(path: Path) -> None:
    """Raise ConfigError where there is something called ``path``: nothing is ever written over."""
    if path.is_symlink() or path.exists():
        raise ConfigError(f"init: {path} is there already, and is left as it is; give another name, or another --to")


def _write_plugin(kind: str, name: str, to: Path | None) -> int:
    from bwbench.cli.init import plugin_package

    folder = to or Path(name)
    refuse_existing(folder)
    for path in plugin_package.write(kind, name, folder):
        print(path)
    for line in plugin_package.next_steps(kind, name, folder):
        stderr().print(line)
    return EXIT_OK
