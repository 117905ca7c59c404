"""What holds for every test of the whole program."""

from collections.abc import Iterator

import pytest

from tests.e2e.program import end_started


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    """A test that fails leaves no program behind that would disturb the next."""
    yield
    end_started()
