"""``bwbench link verify``: what is refused before anything is made (tests/netns/test_link_verify.py: the rest)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bwbench.base.errors import ConfigError
from bwbench.cli.link import measure
from bwbench.network import record as recording
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
    code = "import sys, bwbench.cli.link, bwbench.network.network, bwbench.network.probe; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "pandas", "matplotlib", "pyroute2"} & set(modules)


@pytest.mark.parametrize("iperf3, port", [(True, 5201), (False, 5210)])
def test_each_listener_has_a_port_of_its_own(iperf3: bool, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def record(to: str, port: int, *_: object, **__: object) -> None:
        asked.append(port)
        raise ConfigError("enough")

    monkeypatch.setattr(recording, "record_with_iperf3" if iperf3 else "record", record)
    with pytest.raises(ConfigError, match="enough"):
        measure.record(to="there", iperf3=iperf3)
    assert asked == [port]
