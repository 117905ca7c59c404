"""What stands in the files by which a program in a node finds the others."""

from __future__ import annotations

import pytest

from bwbench.network.namespaces.machine_files import hosts_file, name_services


def test_every_node_stands_at_its_address() -> None:
    lines = hosts_file(["10.77.0.1", "10.77.0.2"]).splitlines()
    assert "10.77.0.1 node0" in lines and "10.77.0.2 node1" in lines and "127.0.0.1 localhost" in lines


@pytest.mark.parametrize(
    "machine, expected",
    [
        ("passwd: files\nhosts: resolve [!UNAVAIL=return] files dns\n", "passwd: files\nhosts: files\n"),
        ("passwd: files sss\n", "passwd: files sss\nhosts: files\n"),
        ("# hosts: none\nhosts:\tmymachines dns", "# hosts: none\nhosts: files"),
        ("", "hosts: files\n"),
    ],
)
def test_no_service_of_the_machine_answers_for_hosts(machine: str, expected: str) -> None:
    assert name_services(machine) == expected
