from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.training.loop.process_groups import WorkerEnvironment


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


def test_slurm_says_who_this_is_where_torchrun_does_not():
    variables = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "MASTER_ADDR": "n0", "MASTER_PORT": "2000"}
    found = WorkerEnvironment.read(variables)
    assert (found.rank, found.world_size, found.master_address, found.store_is_served) == (3, 4, "n0", False)
    assert WorkerEnvironment.read({**variables, "RANK": "0", "WORLD_SIZE": "1"}).world_size == 1


def test_slurm_without_the_address_of_rank_0_is_refused_with_what_to_do():
    with pytest.raises(ConfigError, match="export MASTER_ADDR.*launch-script --slurm"):
        WorkerEnvironment.read({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"})


def test_the_store_that_torchrun_serves_is_used():
    found = WorkerEnvironment.read({"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2"})
    assert found.store_is_served and found.restart == 2
