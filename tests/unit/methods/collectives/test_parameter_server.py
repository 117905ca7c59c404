from __future__ import annotations

import pytest
import torch

from bwbench.methods.collectives.parameter_server import ParameterServer, ParameterServerConfig
from tests.contract.test_collectives import average, inputs


@pytest.mark.parametrize("server", [0, 1, 2])
def test_any_rank_may_be_the_server(server):
    tensors = inputs(3, 10_000)
    results = average("parameter-server", "none", tensors, options={"server": server})
    assert all(torch.equal(result, results[0][0]) for result, _, _ in results)
    assert torch.allclose(results[0][0], torch.stack(tensors).mean(0), atol=1e-6)
    traffic = ParameterServer(ParameterServerConfig(server=server)).traffic(3, [40_000])
    assert [payload_bytes for _, payload_bytes, _ in results] == list(traffic.payload_bytes_per_rank)
    assert max(traffic.payload_bytes_per_rank) == traffic.payload_bytes_per_rank[server] == 80_000


def test_the_server_is_one_of_the_ranks():
    assert "ranks 0 to 3" in ParameterServer(ParameterServerConfig(server=4)).check(4)
    assert ParameterServer(ParameterServerConfig(server=3)).check(4) is None
