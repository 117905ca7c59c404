"""The worker: one training run on one node. Everything here may import torch."""
