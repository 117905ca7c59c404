"""torch and numpy come when they are needed, and are then what they always are."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_nothing_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, bwbench.methods.compression.int8, bwbench.methods.algorithms.qadam, bwbench.training.models.cnn\n"
        "from bwbench.methods.deferred import dist, nn, np, torch\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
        "assert np.float32(1.5) == 1.5 and 'numpy' in sys.modules and 'torch' not in sys.modules\n"
        "import torch as real\n"
        "assert torch.zeros is real.zeros and nn.Module is real.nn.Module and dist.Work is real.distributed.Work\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)


def test_what_is_not_there_is_an_error_as_usual() -> None:
    from bwbench.methods.deferred import torch

    with pytest.raises(AttributeError, match="no_such_thing"):
        torch.no_such_thing  # noqa: B018 (the access is what is tested)
