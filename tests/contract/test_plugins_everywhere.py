"""An algorithm, a collective and a codec of one's own, a file each: right in plan, tables, figures, page and section.

Records are read where the plugins are not known, as on a laptop that got a copied folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures_album import draw_all
from fixtures_matrices import write_matrix

from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS
from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan import build_plan
from bwbench.experiment.plan.sending import traffic_of
from bwbench.methods.roles import CENTRAL, HEADROOM, METHOD, PARTIAL, Topology
from bwbench.records import iter_cells
from bwbench.results.analysis.comparison import compare_cells
from bwbench.results.analysis.results import load_results, regrouped
from bwbench.results.figures.best_algorithm import races_by_link
from bwbench.results.figures.topology_by_medium import TopologyByMedium, topology_of, topology_table
from bwbench.results.page.payload import build_payload
from bwbench.results.publish import publish
from bwbench.results.section import write_section

ALGORITHM = '''
"""Averages that a dreamed-up network gives away."""
from bwbench.base.registry import ALGORITHMS
from bwbench.methods.algorithms.algorithm import AbstractAlgorithm
from bwbench.methods.phases import Phase
from bwbench.methods.traffic import Traffic

class Dream(AbstractAlgorithm):
    """The mean of all gradients, from nowhere."""
    sends = False
    role = "headroom"
    mean_of = "gradients"
    def traffic(self, parameter_shapes, num_nodes, collective, make_codec):
        return Traffic.none(num_nodes)
    def phases(self, parameter_shapes):
        return (Phase("training"),)
    def attach(self, context):
        raise NotImplementedError

ALGORITHMS.register("dream", Dream, "averages out of a dream")
'''
COLLECTIVE = '''
"""All send to one node, which answers half of them."""
from bwbench.base.registry import COLLECTIVES
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.traffic import Traffic

class HalfStar(AbstractCollective):
    """The mean, for half of the nodes."""
    exact = False
    topology = "half a star"
    central = True
    @classmethod
    def accepts(cls, codec):
        return None
    def traffic(self, num_nodes, bucket_payload_bytes):
        size = float(sum(bucket_payload_bytes))
        others = num_nodes - 1
        return Traffic((others * size / 2, *[size] * others), (others * size, *[size / 2] * others), 2)
    def _average(self, bucket, codec, round_):
        raise NotImplementedError

COLLECTIVES.register("half-star", HalfStar, "one node answers half of the others")
'''
CODEC = '''
"""A byte an element."""
from bwbench.base.registry import COMPRESSIONS
from bwbench.methods.compression.codec import AbstractCodec

class OneByte(AbstractCodec):
    """The exponent alone."""
    sums_on_ring = True
    def payload_bytes(self, num_elements):
        return num_elements
    def encode(self, x):
        raise NotImplementedError
    def decode(self, payload, num_elements):
        raise NotImplementedError

COMPRESSIONS.register("one-byte", OneByte, "a byte an element")
'''
EXPERIMENT = """
name: own
link: {bandwidth: 20 Mbit/s, latency: 2.5 ms}
model: cnn
dataset: fashion-mnist
optimizer: {sgd: {lr: 0.05}}
compute: {threads: 1, step_time: 80 ms}
evaluate: {every: 2000 samples}
target: {accuracy: 0.8}
limit: {samples: 120000, time: 4 h}
repeats: 2
mode: composed
plugins: [algorithm.py, collective.py, codec.py]
matrix:
  nodes: [2, 4]
  algorithm, collective, compression:
    - [every-step, ring, none]
    - [dream, none, none]
    - [decentralized, half-star, none]
    - [every-step, ring, one-byte]
"""
SHAPES = [(100, 10)]  # one tensor of 1000 elements, 4000 bytes
ARMS = {"dream": HEADROOM, "decentralized-half-star": METHOD, "ring-one-byte": METHOD}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The experiment's file, plugins beside it; they are known until the module's tests are done."""
    folder = tmp_path_factory.mktemp("experiment")
    for name, text in (("algorithm", ALGORITHM), ("collective", COLLECTIVE), ("codec", CODEC)):
        (folder / f"{name}.py").write_text(text)
    (folder / "own.yaml").write_text(EXPERIMENT)
    kept = [(registry, registry._entries, registry._classes) for registry in (ALGORITHMS, COLLECTIVES, COMPRESSIONS)]
    for registry, entries, classes in kept:
        registry._entries, registry._classes = dict(entries), dict(classes)
    yield folder / "own.yaml"
    for registry, entries, classes in kept:
        registry._entries, registry._classes = entries, classes


@pytest.fixture(scope="module")
def records(experiment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished cells that no run has made."""
    folder = tmp_path_factory.mktemp("results")
    write_matrix(folder, experiment)
    return folder


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch, records: Path) -> Path:
    """The records, where nobody has heard of the plugins."""
    for registry, name in ((ALGORITHMS, "dream"), (COLLECTIVES, "half-star"), (COMPRESSIONS, "one-byte")):
        monkeypatch.delitem(registry._entries, name)
        monkeypatch.delitem(registry._classes, name)
        assert name not in registry
    return records


def test_the_plan_counts_what_they_send_and_says_what_they_are(experiment: Path) -> None:
    cells = {cell.arm: cell for cell in build_plan(load_experiment(experiment)).cells if cell.config.nodes == 4}
    assert {arm: cells[arm].role for arm in ARMS} == ARMS
    assert cells["dream"].kinship == cells["ring"].kinship != cells["ring-one-byte"].kinship
    assert traffic_of(cells["dream"].config, SHAPES).total_bytes == 0
    assert traffic_of(cells["decentralized-half-star"].config, SHAPES).payload_bytes_per_rank == (6000,) + (4000,) * 3
    assert max(traffic_of(cells["ring-one-byte"].config, SHAPES).payload_bytes_per_rank) == 1500
    assert cells["decentralized-half-star"].topology == Topology("half a star", PARTIAL, CENTRAL)
    assert cells["dream"].topology is None


def test_published_cells_say_the_same(strangers: Path, tmp_path: Path) -> None:
    assert [one.num_undone for one in publish(strangers, tmp_path)] == [0]
    (topology,) = {topology_of(cell.cell) for cell in iter_cells(tmp_path) if "half-star" in cell.cell.arm}
    assert topology == Topology("half a star", PARTIAL, CENTRAL)


def test_figures_know_who_averages_with_whom(strangers: Path) -> None:
    topologies = {folder.cell.arm: topology_of(folder.cell) for folder in iter_cells(strangers)}
    assert topologies["decentralized-half-star"] == Topology("half a star", PARTIAL, CENTRAL)
    (group,) = regrouped(load_results(strangers), TopologyByMedium.compares)
    table = topology_table(group).drop_duplicates("arm").set_index("arm")
    assert tuple(table.loc["decentralized-half-star"][["topology", "averaging", "place"]]) == (
        "half a star", PARTIAL, CENTRAL
    )  # fmt: skip
    assert tuple(table.loc["ring-one-byte"][["topology", "averaging", "place"]]) == ("ring", "exact", "decentral")
    assert tuple(table.loc["dream"][["topology", "averaging", "place"]]) == ("", "", "")
    assert TopologyByMedium().applies(group) is None


def test_pictures_are_drawn_with_them(strangers: Path, tmp_path: Path) -> None:
    drawn = draw_all(load_results(strangers), tmp_path, ["topology", "time-to-accuracy"], formats=["png"])
    assert not drawn.skipped
    for figure in ("topology", "time-to-accuracy"):
        numbers = [path.read_text() for path in drawn.paths if path.name.startswith(figure) and path.suffix == ".json"]
        assert numbers and all(arm in text for arm in ARMS for text in numbers)


def test_the_comparison_holds_them_and_what_is_free_wins_nothing(strangers: Path) -> None:
    comparison = compare_cells(iter_cells(strangers), "ring", by="nodes")
    assert {row.algorithm for row in comparison.rows} == set(ARMS)
    assert {row.algorithm for row in comparison.pareto} >= {"decentralized-half-star", "ring-one-byte"}
    (group,) = regrouped(load_results(strangers), frozenset({"nodes"}))
    assert group.limits == ["dream"]
    (race,) = races_by_link(group.cells)
    assert "dream" not in race.best.times


def test_the_page_shows_them(strangers: Path) -> None:
    payload = json.loads(json.dumps(build_payload(list(iter_cells(strangers)), "own")))
    roles = {arm["name"]: arm["role"] for arm in payload["arms"]}
    assert roles == {**ARMS, "ring": METHOD}


def test_the_section_names_them(strangers: Path) -> None:
    text = write_section(load_results(strangers), "markdown")
    assert all(arm in text for arm in ARMS)
