"""Data sets: real ones and synthetic ones, their download, and how they are dealt out to nodes."""

from __future__ import annotations

from bwbench.base.data_spec import DataSpec
from bwbench.training.datasets.dataset import AbstractDataset, FileDigest, RemoteFile, Samples, Splits, data_folder

__all__ = ["AbstractDataset", "DataSpec", "FileDigest", "RemoteFile", "Samples", "Splits", "data_folder"]
