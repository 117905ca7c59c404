"""Virtual nodes learn what workers learn, to the bit, whatever the method: both train the same cells."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bwbench.experiment.config.method_names import PRESETS

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))
from training_parts.pool import Pool
from virtual_nodes_parts.both_ways import by_virtual_nodes, by_workers, tiny, virtual_presets

# One node; and three that learn by what time things take.
TIME_ALONE = {"single", "async", "overlapped-local-sgd", "deco-sgd"}


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, Pool]]:
    """Real workers, by their number, which train one cell after the other."""
    with Pool(2) as two, Pool(4) as four:
        yield {2: two, 4: four}


def test_all_repeatable_presets_may_be_virtual() -> None:
    assert set(virtual_presets()) == set(PRESETS) - TIME_ALONE


@pytest.mark.timeout(120)
@pytest.mark.parametrize("num_nodes", [pytest.param(2, marks=pytest.mark.thorough), 4])
@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset not in TIME_ALONE])
def test_every_method_has_the_bits_of_as_many_workers(preset: str, num_nodes: int, pools: dict[int, Pool]) -> None:
    cell = tiny(preset, num_nodes)
    is_equal = by_virtual_nodes(cell) == by_workers(cell, pools[num_nodes])  # a diff of them would take minutes
    assert is_equal


@pytest.mark.timeout(120)
@pytest.mark.parametrize("preset", ["ddp", "muloco"])
def test_averages_of_weights_have_the_bits_of_as_many_workers(preset: str, pools: dict[int, Pool]) -> None:
    cell = tiny(preset, 4, model="{cnn: {width: 4, hidden: 8}}", average="{ema: 200 samples}")
    is_equal = by_virtual_nodes(cell) == by_workers(cell, pools[4])
    assert is_equal
