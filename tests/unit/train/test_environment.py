from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.errors import ConfigError
from bwbench.train.environment import WorkerEnvironment


def test_nothing_set_is_one_rank_alone():
    assert WorkerEnvironment.read({}) == WorkerEnvironment()


def test_everything_set():
    variables = {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "10.78.0.1",
        "MASTER_PORT": "1234",
        "BWBENCH_DATA_INTERFACE": "data0",
        "BWBENCH_CONTROL_INTERFACE": "ctl0",
        "BWBENCH_ATTEMPT_DIR": "/tmp/a b",
    }
    expected = WorkerEnvironment(2, 4, "10.78.0.1", 1234, "data0", "ctl0", Path("/tmp/a b"))
    assert WorkerEnvironment.read(variables) == expected


@pytest.mark.parametrize("variables", [{"RANK": "x"}, {"RANK": "1"}, {"RANK": "-1"}, {"MASTER_PORT": "http"}])
def test_nonsense_is_refused(variables):
    with pytest.raises(ConfigError):
        WorkerEnvironment.read(variables)
