"""The interface that leads to the other hosts."""

from __future__ import annotations

import pytest

from bwbench.base.errors import ConfigError
from bwbench.training.loop.interfaces import counters_of, interface_towards, named_interface


def test_the_way_to_this_host_is_the_loopback() -> None:
    found = interface_towards("127.0.0.1")
    assert (found.name, found.address) == ("lo", "127.0.0.1")
    assert named_interface("lo") == found


def test_an_unknown_host_is_told() -> None:
    with pytest.raises(ConfigError, match="no way leads to 'no such host'.*MASTER_ADDR"):
        interface_towards("no such host")


def test_an_unknown_interface_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="no interface 'wlan7'; it has .*lo"):
        named_interface("wlan7")


def test_counters_grow_and_are_nothing_where_there_is_no_interface() -> None:
    assert counters_of("no such interface") == (0, 0, 0)
    assert all(now >= 0 for now in counters_of("lo"))
