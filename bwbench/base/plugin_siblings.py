"""A plugin imports the files that lie beside it, and nothing else does.

The folder of a plugin is not on ``sys.path``: a ``wandb.py`` there would be found by every library that tries whether
it is installed. A finder at the end of ``sys.meta_path`` looks at who imports, and answers to files of that folder
alone. A name that Python or an installed package has already is theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, FrameType, ModuleType


class PluginSiblings:
    """A finder of modules for the files of some folders, which finds them in their own one."""

    def __init__(self) -> None:
        self._folders: set[Path] = set()

    def serve(self, folder: Path) -> None:
        """Let the files of ``folder`` import one another from now on."""
        self._folders.add(folder)
        if self not in sys.meta_path:
            sys.meta_path.append(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module ``name`` beside the file that imports it; None for what belongs to a package, and for others."""
        if path is not None:
            return None
        importer = _importer(sys._getframe(1))
        folders = [folder for folder in self._folders if importer is not None and importer.is_relative_to(folder)]
        return PathFinder.find_spec(name, [str(folder) for folder in folders]) if folders else None


def _importer(frame: FrameType | None) -> Path | None:
    """The file whose code imports, seen from within the import."""
    while frame is not None and _belongs_to_import(frame.f_code):
        frame = frame.f_back
    return Path(frame.f_code.co_filename) if frame is not None else None


def _belongs_to_import(code: CodeType) -> bool:
    return code.co_filename.startswith("<frozen importlib") or code.co_filename.endswith("/importlib/__init__.py")


PLUGIN_SIBLINGS = PluginSiblings()
