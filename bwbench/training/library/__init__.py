"""bwbench in anyone's own training script: the same algorithms, collectives and codecs, without the harness."""

from bwbench.training.library.balanced_sampler import LoadBalancedSampler
from bwbench.training.library.distribution import distribute
from bwbench.training.library.handle import Distributed

__all__ = ["Distributed", "LoadBalancedSampler", "distribute"]
