"""What comes with bwbench: experiments (``configs/``), a small set of published records, the pages about plugins.

They lie in one place only, at the top of the repository. Building copies them into the package (``setup.py``).
"""

from __future__ import annotations

from pathlib import Path

from bwbench.base.errors import ConfigError
from bwbench.base.explain import nearest

_PACKAGE = Path(__file__).resolve().parents[1]
_PACKAGED = _PACKAGE / "examples"
_ROOT = _PACKAGED if _PACKAGED.is_dir() else _PACKAGE.parent  # the latter in a clone, and in an editable install

DEMO = "wifi_10mbps"  # answers its question within minutes, without a download
RECORDS = _ROOT / "results" / "published" / "bandwidth-resnet8"  # six methods on four links


def page_file(name: str) -> Path:
    """The page ``docs/NAME``, of those about plugins."""
    return _ROOT / "docs" / name


def example_names() -> list[str]:
    """Names of all example experiments."""
    return sorted(file.stem for file in (_ROOT / "configs").glob("*.yaml"))


def example_file(name: str) -> Path:
    """The example experiment called ``name``; raises ConfigError with all names where there is none."""
    names = example_names()
    if name not in names:
        raise ConfigError(f"no example is called {name!r}.{nearest(name, names)} There are: {', '.join(names)}")
    return _ROOT / "configs" / f"{name}.yaml"
