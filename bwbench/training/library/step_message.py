"""What ranks tell each other in every step in which they average gradients: four bits a parameter."""

from __future__ import annotations

import enum

import torch
import torch.distributed as dist

from bwbench.methods.collectives.telling import Telling, tell_all
from bwbench.methods.collectives.transport import Members

TAG = 1 << 21  # beyond the tags of buckets and votes: data and control may be one group
_BITS = 4  # of each parameter


class Seen(enum.IntFlag):
    """What a rank has seen of one parameter in a step."""

    USED = 1  # it has a gradient
    TRAINED = 2  # it requires one
    NAN = 4  # its gradient holds nan
    INF = 8  # its gradient holds an infinity, and no nan


def tell_step(group: dist.ProcessGroup, seen: torch.Tensor) -> Telling:
    """Send what this rank has seen of every parameter, uint8, to all others; what they say is read by ``heard``."""
    padded = torch.nn.functional.pad(seen, (0, seen.numel() % 2))
    return tell_all(group, Members.all_of(group), padded[0::2] | padded[1::2] << _BITS, TAG)


def heard(telling: Telling, num_parameters: int) -> torch.Tensor:
    """What every rank has seen of every parameter, uint8: [ranks, parameters]. Waits."""
    said = telling.wait()
    return torch.stack([said & (1 << _BITS) - 1, said >> _BITS], dim=2).reshape(said.shape[0], -1)[:, :num_parameters]
