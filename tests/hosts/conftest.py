"""Four hosts for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosts.lab import Lab, lab


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), 4) as made:
        yield made
