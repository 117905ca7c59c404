"""bwbench in anyone's own training script: the same algorithms, collectives and codecs, without the harness."""

from bwbench.library.balanced_sampler import LoadBalancedSampler
from bwbench.library.distribution import distribute
from bwbench.library.handle import Distributed

__all__ = ["Distributed", "LoadBalancedSampler", "distribute"]
