"""Acknowledgements are told apart from payload in the kernel."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from bwbench.network.link import UNSHAPED
from bwbench.network.network import open_network

pytestmark = [pytest.mark.netns]

REPOSITORY = Path(__file__).parents[2]


def test_the_filter_passes_tcp_without_payload_and_nothing_else() -> None:
    read, write = os.pipe()
    with open_network(UNSHAPED, 1) as network:
        module = [sys.executable, "-m", "tests.netns.acks_on_loopback"]
        process = network.spawn(0, module, cwd=REPOSITORY, stdout=write, stderr=write)
        os.close(write)
        with open(read, encoding="utf-8") as stream:
            text = stream.read()
        assert process.wait(20) == 0, text
    counts = json.loads(text)
    assert counts["ours"] == counts["seen"] > counts["first"] > 0
    assert counts["frames"] > counts["seen"]
