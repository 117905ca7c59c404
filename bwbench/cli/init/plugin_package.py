"""A component of one's own, as a small package: one module, its entry point, a test of its contract, an experiment."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bwbench import __version__
from bwbench.base.errors import ConfigError
from bwbench.base.examples import page_file
from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS, DATASETS, FIGURES, MODELS, Registry
from bwbench.cli.init.templates_of import rendered

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MOST_LETTERS = 24  # so that no line of the templates becomes too long


@dataclass(frozen=True)
class _Kind:
    """Where components of a kind are registered, the key that names them in a file, and the page about them."""

    registry: Registry
    key: str | None
    page: str


_KINDS = {
    "codec": _Kind(COMPRESSIONS, "compression", "add-a-codec.md"),
    "collective": _Kind(COLLECTIVES, "collective", "add-a-collective.md"),
    "algorithm": _Kind(ALGORITHMS, "algorithm", "add-an-algorithm.md"),
    "model": _Kind(MODELS, "model", "add-a-model.md"),
    "dataset": _Kind(DATASETS, "dataset", "add-a-data-set.md"),
    "figure": _Kind(FIGURES, None, "add-a-figure.md"),
}


def write(kind: str, name: str, folder: Path) -> list[Path]:
    """Write the package of a component into a new folder; the files, with the class first.

    Raises ConfigError for a name that cannot be, or is taken; a folder is there whole or not at all.
    """
    about = _KINDS[kind]
    _check(kind, name, about.registry)
    module = f"bwbench_{name.replace('-', '_')}"
    values = {
        "kind": kind,
        "group": f"bwbench.{about.registry.kind}",
        "name": name,
        "module": module,
        "cls": "".join(part.capitalize() for part in name.split("-")) + kind.capitalize(),
        "page": about.page,
        "version": __version__,
        "has_experiment": about.key is not None,
    }
    contents = {
        f"{module}.py": rendered(f"{kind}/component.py", **values),
        "pyproject.toml": rendered("package/pyproject.toml", **values),
        "README.md": rendered("package/README.md", **values),
        "tests/test_contract.py": rendered(f"{kind}/test_contract.py", **values),
    }
    if about.key is not None:
        contents["compare.yaml"] = rendered(f"{kind}/compare.yaml", **values)
    try:
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"init: there is no folder {folder.parent} to make {folder.name} in; make it first") from None
    try:
        for path, text in contents.items():
            (partial / path).parent.mkdir(exist_ok=True)
            (partial / path).write_text(text, encoding="utf-8")
        partial.chmod(0o755)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return [folder / path for path in contents]


def next_steps(kind: str, name: str, folder: Path) -> list[str]:
    """What to do with a package that was written, as commands."""
    inside = shlex.quote(str(folder))
    lines = [f"cd {inside}", "pip install -e '.[test]'", "pytest    # does it keep the contract?"]
    if _KINDS[kind].key is None:
        lines.append(f"bwbench plot FOLDER --figure {name}    # of results that you have")
    else:
        lines += ["bwbench plan compare.yaml    # once the class is yours", "bwbench run compare.yaml"]
    about = f"What each part is for: {page_file(_KINDS[kind].page)}"
    return ["Next:", *(f"  {line}" for line in lines), about]


def _check(kind: str, name: str, registry: Registry) -> None:
    if not _NAME.fullmatch(name) or len(name) > _MOST_LETTERS or name == "abstract":
        raise ConfigError(
            f"init {kind}: {name!r} is no name for it; use lower-case words joined by hyphens, as one-bit, with at "
            f"most {_MOST_LETTERS} letters"
        )
    if name in registry:
        taken = next(entry for entry in registry if entry.name == name)
        raise ConfigError(f"init {kind}: the name {name!r} is taken by {taken.provider}; choose another one")
