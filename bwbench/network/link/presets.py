"""Links with a name. ``presets.yaml`` holds them with their sources; users keep their own in a YAML file alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def expand_preset(link: Mapping[str, Any]) -> dict[str, Any]:
    """The link that ``preset`` stands for, with the other keys of ``link`` on top."""
    raise NotImplementedError
