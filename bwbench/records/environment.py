"""What a trial ran on: recorded with every attempt, never part of a cell's identity."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from bwbench import __version__
from bwbench.records.schema import Environment, GitState

_PACKAGES = ("torch", "numpy", "pyroute2", "scikit-learn")
_TCP_SETTINGS = (
    "tcp_congestion_control",
    "tcp_slow_start_after_idle",
    "tcp_rmem",
    "tcp_wmem",
    "tcp_rto_max_ms",
    "tcp_no_metrics_save",
)


def capture_environment(
    plugins_sha256: Mapping[str, str | None] | None = None, *, compiled_codecs: bool | None = None
) -> Environment:
    """Host, kernel, processor, versions and the commit of the program, as written to ``environment.json``.

    Args:
        plugins_sha256: of what takes part and is not the program's (``experiment/plan/plugin_sources.py``).
        compiled_codecs: whether codecs run compiled (``are_compiled`` in ``methods/native.py``); None says nothing of
            it.
    """
    processor = (_read("/proc/cpuinfo") or "").splitlines()
    models = [line.partition(":")[2].strip() for line in processor if line.startswith("model name")]
    return Environment(
        time_unix_s=time.time(),
        host=platform.node(),
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        kernel=platform.release(),
        machine=platform.machine(),
        cpu=models[0] if models else platform.processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        load_1min=os.getloadavg()[0],
        python=platform.python_version(),
        bwbench=__version__,
        packages=versions(),
        git=_git_state(),
        source_sha256=_source_digest(),
        plugins_sha256=dict(plugins_sha256 or {}),
        root=os.geteuid() == 0,
        compiled_codecs=compiled_codecs,
    )


def tcp_settings() -> dict[str, str]:
    """TCP's settings in the calling process's network namespace."""
    found = {name: _read(f"/proc/sys/net/ipv4/{name}") for name in _TCP_SETTINGS}
    return {name: " ".join(value.split()) for name, value in found.items() if value is not None}


@functools.cache
def versions() -> dict[str, str]:
    """Of the packages that training rests on, as far as they are installed."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


@functools.cache
def _git_state() -> GitState | None:
    """Commit of the source tree that runs, and whether it was changed; None outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "bwbench")
    except (OSError, subprocess.SubprocessError):
        return None
    return GitState(commit=commit, dirty=bool(changed))


@functools.cache
def _source_digest() -> str:
    """Of all Python files of the package: it tells programs apart where a commit cannot, in a changed checkout."""
    package, digest = Path(__file__).resolve().parents[1], hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None
