"""Plugin for CI (``-p tests.no_skips``): a test skipped on a machine that should run it fails the session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_NEEDED = {"avx2", "fma", "f16c", "bmi2"}


def _has_avx2() -> bool:
    """Whether this processor has what native.c asks for."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return _NEEDED <= {*flags}


class _NoSkips:
    def __init__(self) -> None:
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Real data sets carry licences of their own and are not everywhere: without the folder those tests may skip.
        # Nor are GPUs everywhere, or the processors for which codecs are compiled.
        excused = (
            "gpu" in report.keywords
            or ("data" in report.keywords and "BWBENCH_DATA" not in os.environ)
            or ("avx2" in report.keywords and not _has_avx2())
        )
        if report.skipped and not hasattr(report, "wasxfail") and not excused:
            self.skipped.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skipped:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in self.skipped:
            terminalreporter.write_line(f"skipped here, though it should run: {nodeid}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_NoSkips(), "no-skips")
