"""Which cells belong into one picture: equal in all that varies, apart from arm, repeat and what the picture compares.

What an experiment varies is read from its cells. A setting that only follows another one (the data set that comes with
a model, the learning rate tuned for an arm, the duration of a step that comes with a batch) makes none of its own.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bwbench.base.units import BANDWIDTH, DURATION, MEMORY
from bwbench.records import CellFolder
from bwbench.results.analysis.cells import (
    concerns_no_link,
    dilation_of,
    is_reference,
    setting_of_cell,
    shrink_of,
    vector_speed_of,
)

BANDWIDTH_KEY = "link.bandwidth"
INSIDE_KEY = "link.bandwidth_inside_sites"
UNSHAPED = "unshaped"  # stands for the bandwidth of a link that nothing shapes

# These make the arm and the repeat: every picture spans them.
_OF_AN_ARM = ("algorithm", "collective", "compression", "seed", "plugins", "link.shaped")
# Never taken to follow another setting: no picture mixes models because each came with a bandwidth of its own.
_NEVER_MIXED = ("model.name", "model.of", "dataset.name")
_NOT_OF_ONE_NODE = (
    "nodes",
    "dilation",
    "shrink",
    "compute.vector_speed",
)  # one node alone is one, in the machine's time, beside any number in any time
# Where two settings vary together, the first one of these names the picture.
_PRIORITY = ("nodes", "batch_size", "accumulate", "link.medium", "link.latency", "link.loss")
_UNITS = {**BANDWIDTH.factors, **DURATION.factors, **MEMORY.factors}

Key = tuple[tuple[str, object], ...]
Flat = Mapping[str, object]
_LONGEST = 40  # characters of one setting in a file's name
_MOST = 10**300  # that a float can stand for; a configuration may hold any number


@dataclass(frozen=True)
class Group:
    """Cells that are compared in one picture, and what tells them from the other groups of the experiment.

    Attributes:
        compares: the settings, besides arm and repeat, that may differ between its cells.
    """

    key: Key
    folders: tuple[CellFolder, ...]
    compares: frozenset[str] = frozenset({BANDWIDTH_KEY})

    @property
    def label(self) -> str:
        """For file names: ``mlp_4-nodes_10Mbps``; empty where the experiment has one group alone."""
        return "_".join(_short(name, value) for name, value in self.key)

    @property
    def words(self) -> str:
        """For captions, only what a caption does not say anyway: ``accumulate 4``."""
        said = ("model.name", "dataset.name", "nodes", "link.latency", "link.medium", "link.jitter", "link.loss")
        return ", ".join(f"{_phrase(name)} {value}" for name, value in self.key if name not in (*said, BANDWIDTH_KEY))

    @property
    def bandwidths(self) -> list[float | None]:
        """The bandwidths that the arms ran at, in bit/s, rising; None (unshaped) comes last."""
        found = {bps for linkless, bps in self._links if not linkless}
        return sorted(found, key=lambda bps: float("inf") if bps is None else bps) or [None]

    def at(self, bandwidth_bps: float | None) -> list[CellFolder]:
        """The cells of one bandwidth, together with the arms that no link concerns."""
        links = zip(self.folders, self._links, strict=True)
        return [folder for folder, (linkless, bps) in links if linkless or bps == bandwidth_bps]

    @cached_property
    def _links(self) -> list[tuple[bool, float | None]]:
        """Of each cell, whether no link concerns it, and its bandwidth."""
        return [(concerns_no_link(f.cell), setting_of_cell(f).bandwidth_bps) for f in self.folders]


def group_cells(folders: Sequence[CellFolder], compares: Collection[str] = frozenset({BANDWIDTH_KEY})) -> list[Group]:
    """The groups of one experiment, in order of their settings. Cells of one node alone join every group they fit.

    Args:
        compares: flat names of the settings that one group spans; what only follows them splits nothing either.
    """
    flat = {folder.path: flat_settings(folder) for folder in folders}
    deciders = deciding(folders)
    names = _independent_settings(deciders, flat, frozenset(compares))
    members: dict[Key, list[CellFolder]] = {}
    for folder in deciders:
        members.setdefault(tuple((name, flat[folder.path].get(name)) for name in names), []).append(folder)
    decided = {folder.path for folder in deciders}
    joining = [folder for folder in folders if folder.path not in decided]
    groups = []
    for key in sorted(members, key=lambda key: [sortable(value) for _, value in key]):
        joined = {folder.path for folder in [*members[key], *_joined(joining, key, members[key], flat)]}
        groups.append(Group(key, tuple(f for f in folders if f.path in joined), frozenset(compares)))
    return groups


def deciding(folders: Sequence[CellFolder]) -> list[CellFolder]:
    """The cells whose settings tell groups apart: those that a link concerns; all where none does."""
    return [folder for folder in folders if not concerns_no_link(folder.cell)] or list(folders)


def flat_settings(folder: CellFolder) -> Flat:
    """The configuration of a cell by flat names (``link.latency``), with what is not written out where it is usual.

    An unshaped link has that as its bandwidth, one with sites that of the slowest way between two of them, as tables
    show it, beside what its nodes have inside. The machine's own time is a dilation of 1, what is whole a shrink of 1,
    and its own software a vector_speed of 1.
    """
    config = folder.cell.config
    flat = {**folder.flat_config, "dilation": f"{dilation_of(config):g}", "shrink": f"{shrink_of(config):g}"}
    flat["compute.vector_speed"] = f"{vector_speed_of(config):g}"
    if BANDWIDTH_KEY not in flat:
        return flat
    if not flat.get("link.shaped", True):
        return {**flat, BANDWIDTH_KEY: UNSHAPED}
    setting = setting_of_cell(folder)
    if not setting.num_sites or setting.bandwidth_bps is None:
        return flat
    return {**flat, INSIDE_KEY: flat[BANDWIDTH_KEY], BANDWIDTH_KEY: BANDWIDTH.format(setting.bandwidth_bps)}


def sortable(value: object) -> tuple[int, float, str]:
    """Numbers and quantities by size (all values of one setting have one dimension), words by the alphabet."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return 0, float(max(-_MOST, min(value, _MOST))), ""
    match = re.fullmatch(r"(\d+\.?\d*)(?: (\S+))?", str(value))
    if match and (match[2] is None or match[2] in _UNITS):
        return 0, float(match[1]) * _UNITS.get(match[2] or "", 1.0), ""
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))


def _independent_settings(
    folders: Sequence[CellFolder], flat: Mapping[Any, Flat], compares: frozenset[str]
) -> list[str]:
    """Names of the settings that vary within an arm and do not merely follow settings that are compared or taken."""
    # What has one value over all cells has one within every arm: most settings need no closer look.
    names = {name for folder in folders for name in flat[folder.path]}
    several = {name for name in names if len({flat[folder.path].get(name) for folder in folders}) > 1}
    varying = {name for name in several if not _belongs(name, _OF_AN_ARM)}
    first = [name for name in _NEVER_MIXED if name in varying]
    # What follows the bandwidth (a limit, the other half of a named link) splits nothing, compared or not.
    then = [BANDWIDTH_KEY, *sorted(name for name in varying if _belongs(name, compares) and name != BANDWIDTH_KEY)]
    ranks = {name: place for place, name in enumerate(_PRIORITY)}
    rest = sorted(varying - {*first, *then}, key=lambda name: (ranks.get(name, len(ranks)), name))
    taken: list[str] = []
    known: list[str] = []
    for name in [*first, *then, *rest]:
        if _belongs(name, compares):
            known.append(name)
        elif _varies(name, known, folders, flat):
            known.append(name)
            taken.append(name)
    return sorted(taken, key=lambda name: name == BANDWIDTH_KEY)  # names and orders pictures last


def _varies(name: str, known: Sequence[str], folders: Sequence[CellFolder], flat: Mapping[Any, Flat]) -> bool:
    """Whether a setting has two values within an arm, all ``known`` settings being equal."""
    seen: dict[tuple[Any, ...], Any] = {}
    for folder in folders:
        settings = flat[folder.path]
        where = (folder.cell.arm, *(settings.get(other) for other in known))
        if seen.setdefault(where, settings.get(name)) != settings.get(name):
            return True
    return False


def _joined(
    joining: Sequence[CellFolder], key: Key, members: Sequence[CellFolder], flat: Mapping[Any, Flat]
) -> list[CellFolder]:
    """Which of the cells that no link concerns belong to a group: those that compute as its members do, if any."""
    fitting = [folder for folder in joining if _fits(folder, key, flat[folder.path])]
    computing = {_compute_of(flat[folder.path]) for folder in members}
    return [folder for folder in fitting if _compute_of(flat[folder.path]) in computing] or fitting


def _compute_of(settings: Flat) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, str(value)) for name, value in settings.items() if name.startswith("compute.")))


def _fits(folder: CellFolder, key: Key, settings: Flat) -> bool:
    single = is_reference(folder.cell)
    of_others = _NOT_OF_ONE_NODE if single else ()
    asked = [(name, value) for name, value in key if not name.startswith("link.") and name not in of_others]
    return all(settings.get(name) == (_of_one_node(name, value) if single else value) for name, value in asked)


def _of_one_node(name: str, value: Any) -> Any:
    """A setting without what it says of nodes but the first that differ, which one node alone does not have."""
    if name != "compute.step_time" or value is None:
        return value
    everyones, *own = str(value).split(", node ")
    return ", node ".join([everyones, *(one for one in own if one.startswith("0: "))])


def _belongs(name: str, settings: Collection[str]) -> bool:
    return any(name == setting or name.startswith(f"{setting}.") for setting in settings)


def _short(name: str, value: object) -> str:
    if name == BANDWIDTH_KEY:
        text = "bandwidth-varies" if value is None else str(value).replace(" ", "").replace("bit/s", "bps")
    else:
        text = str(value) if name in _NEVER_MIXED else f"{_phrase(name)}-{value}"
        text = f"{value}-nodes" if name == "nodes" else text
    text = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}-{zlib.crc32(text.encode()):08x}"


def setting_words(name: str, value: object) -> str:
    """One setting of a group for people: ``4 nodes``, ``latency 100 ms``, ``no preset``."""
    if name == "nodes":
        return f"{value} {'node' if value == 1 else 'nodes'}"
    phrase = name.removesuffix(".name").removeprefix("link.").replace(".", " ").replace("_", " ")
    return f"{phrase} {value}" if value is not None else f"no {phrase}"


def _phrase(name: str) -> str:
    return name.removesuffix(".name").replace("link.", "").replace(".", " ").replace("_", " ")
