"""Tests that need a GPU (``make test-gpu``); elsewhere they are skipped, and say why."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    built = "finds no GPU here" if torch.version.cuda else "is a build without CUDA"
    skip = pytest.mark.skip(reason=f"needs a GPU, and torch {torch.__version__} {built}")
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(skip)
