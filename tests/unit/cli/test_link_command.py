"""``bwbench link verify``: what is refused before anything is made (tests/netns/test_link_verify.py: the rest)."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from bwbench.base.errors import ConfigError
from bwbench.cli.link import measure
from bwbench.cli.link.link_commands import app
from tests.netns.link_command import verify


@pytest.mark.parametrize(
    "option, value, words",
    [
        ("bandwidth", "10", "10 Mbit/s"),
        ("bandwidth", "10 MB/s", "Mbit/s"),
        ("bandwidth", "0 Mbit/s", "1 kbit/s or more"),
        ("bandwidth", "-1 Mbit/s", "1 kbit/s or more"),
        ("bandwidth", "fast", "10 Mbit/s"),
        ("latency", "2.5", "2.5 ms"),
        ("latency", "2.5 Mbit/s", "ms"),
        ("loss", "1.5", "less than 1"),
        ("loss", "much", "number"),
        ("queue", "64", "kB"),
        ("medium", "wifi", "switched, shared"),
        ("backend", "tc", "netem, relay"),
    ],
)
def test_a_wrong_value_is_said_with_its_option(option: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        verify(**{"bandwidth": "10 Mbit/s", option: value})
    assert str(caught.value).startswith(f"--{option}: ")
    assert words in str(caught.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        verify(bandwidth="10", latency="1", loss="2")
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("tolerance", ["0", "1", "-0.1", "nan"])
def test_a_tolerance_that_makes_no_sense_is_refused(tolerance: str) -> None:
    with pytest.raises(ConfigError, match="tolerance"):
        verify(bandwidth="10 Mbit/s", tolerance=tolerance)


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, bwbench.cli.link.measure, bwbench.network.network, bwbench.network.probe; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "pandas", "matplotlib", "pyroute2"} & set(modules)


@pytest.mark.parametrize("flags, port", [([], 5210), (["--iperf3"], 5201), (["--iperf3", "--port", "7"], 7)])
def test_the_port_of_whom_is_recorded_with(flags: list[str], port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(to: str, number: int, *_: object, **__: object) -> None:
        asked.append(number)
        raise ConfigError("port: enough")

    monkeypatch.setattr(measure, "record_with_iperf3" if flags else "record", refuse)
    found = CliRunner().invoke(app, ["record", "--to", "b", *flags], standalone_mode=False)
    assert asked == [port] and str(found.exception) == "--port: enough"
