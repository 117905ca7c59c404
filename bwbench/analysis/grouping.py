"""Which cells belong into one picture: equal in all that varies, apart from arm, repeat and bandwidth.

What an experiment varies is read from its cells. A setting that only follows another one (the data set that comes with
a model, the learning rate tuned for an arm) makes no picture of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bwbench.analysis.cells import Setting, setting_of
from bwbench.records import CellFolder
from bwbench.units import BANDWIDTH

# These make the arm, the repeat or the axis of bandwidth; nothing else is compared inside one picture.
_COMPARED = ("algorithm", "collective", "compression", "seed", "plugins", "link.bandwidth", "link.shaped")
# Where two settings vary together, the first one of these names the picture.
_PRIORITY = (
    "model.name",
    "dataset.name",
    "nodes",
    "batch_size",
    "accumulate",
    "link.medium",
    "link.latency",
    "link.loss",
)

Key = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Group:
    """Cells that are compared in one picture, and what tells them from the other groups of the experiment."""

    key: Key
    folders: tuple[CellFolder, ...]

    @property
    def label(self) -> str:
        """For file names: ``mlp_4-nodes``; empty where the experiment has one group alone."""
        return "_".join(_short(name, value) for name, value in self.key)

    @property
    def words(self) -> str:
        """For captions, only what a caption does not say anyway: ``accumulate 4``."""
        said = ("model.name", "dataset.name", "nodes", "link.latency", "link.medium", "link.jitter", "link.loss")
        return ", ".join(f"{_phrase(name)} {value}" for name, value in self.key if name not in said)

    @property
    def bandwidths(self) -> list[float | None]:
        """The bandwidths that the arms ran at, in bit/s, rising; None (unshaped) comes last."""
        found = {setting_of(f.cell["config"]).bandwidth_bps for f in self.folders if not _needs_no_link(f)}
        return sorted(found, key=lambda bps: float("inf") if bps is None else bps) or [None]

    def at(self, bandwidth_bps: float | None) -> list[CellFolder]:
        """The cells of one bandwidth, together with the arms that no link concerns."""
        return [
            folder
            for folder in self.folders
            if _needs_no_link(folder) or setting_of(folder.cell["config"]).bandwidth_bps == bandwidth_bps
        ]


def group_cells(folders: Sequence[CellFolder]) -> list[Group]:
    """The groups of one experiment, in order of their settings. Cells of one node alone join every group they fit."""
    flat = {folder.path: dict(_flatten(folder.cell["config"])) for folder in folders}
    deciding = [folder for folder in folders if not _needs_no_link(folder)] or list(folders)
    names = _independent_settings(deciding, flat)
    keys = {tuple((name, flat[folder.path].get(name)) for name in names) for folder in deciding}
    groups = []
    for key in sorted(keys, key=_sortable):
        members = tuple(folder for folder in folders if _fits(folder, key, flat[folder.path]))
        groups.append(Group(key, members))
    return groups


def bandwidth_label(bandwidth_bps: float | None) -> str:
    """A bandwidth for file names: ``10Mbps``."""
    if bandwidth_bps is None:
        return "unshaped"
    return BANDWIDTH.format(bandwidth_bps).replace(" ", "").replace("bit/s", "bps")


def _needs_no_link(folder: CellFolder) -> bool:
    setting: Setting = setting_of(folder.cell["config"])
    return setting.is_single or (setting.algorithm == "no-communication" and setting.bandwidth_bps is None)


def _independent_settings(folders: Sequence[CellFolder], flat: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    """Names of the settings that vary within an arm and do not merely follow settings that are taken already."""
    all_names = {name for folder in folders for name in flat[folder.path] if not _is_compared(name)}
    ordered = sorted(all_names, key=lambda name: (_PRIORITY.index(name) if name in _PRIORITY else len(_PRIORITY), name))
    taken: list[str] = []
    for name in ordered:
        seen: dict[tuple[Any, ...], Any] = {}
        for folder in folders:
            settings = flat[folder.path]
            known = tuple(settings.get(other) for other in ("link.shaped", "link.bandwidth", *taken))
            value = settings.get(name)
            if seen.setdefault((folder.cell["arm"], *known), value) != value:
                taken.append(name)
                break
    return taken


def _fits(folder: CellFolder, key: Key, settings: Mapping[str, Any]) -> bool:
    setting = setting_of(folder.cell["config"])
    for name, value in key:
        if setting.is_single and name == "nodes":
            continue
        if _needs_no_link(folder) and name.startswith("link."):
            continue
        if settings.get(name) != value:
            return False
    return True


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value, sort_keys=True) if isinstance(value, list) else value


def _is_compared(name: str) -> bool:
    return any(name == compared or name.startswith(f"{compared}.") for compared in _COMPARED)


def _sortable(key: Key) -> list[tuple[int, float, str]]:
    parts = []
    for _, value in key:
        number = re.match(r"[\d.]+$", str(value))
        parts.append((0, float(number[0]), "") if number and not isinstance(value, bool) else (1, 0.0, str(value)))
    return parts


def _short(name: str, value: Any) -> str:
    text = str(value) if name in ("model.name", "dataset.name") else f"{_phrase(name)}-{value}"
    text = f"{value}-nodes" if name == "nodes" else text
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")


def _phrase(name: str) -> str:
    return name.removesuffix(".name").replace("link.", "").replace(".", " ").replace("_", " ")
