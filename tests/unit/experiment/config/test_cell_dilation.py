"""Slow motion in experiment files: what it becomes, what ``auto`` takes, and what is refused at its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.cell_dilation import auto_dilation
from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.config.resolve import resolve
from bwbench.experiment.plan.composing import convergence_config
from bwbench.records.cell_identity import identity, recorded_identity

EXPERIMENT = """\
name: slow
nodes: 4
link: {bandwidth: 100 Mbit/s, latency: 1 ms}
model: mlp
compute: {step_time: 100 ms}
limit: {samples: 128000}
algorithm: ring
"""


def config_of(folder: Path, text: str) -> CellConfig:
    path = folder / "slow.yaml"
    path.write_text(text)
    return load_experiment(path).points[0].config


def test_without_it_cells_are_what_they_were(tmp_path: Path) -> None:
    plain = config_of(tmp_path, EXPERIMENT)
    one = config_of(tmp_path, EXPERIMENT + "dilation: 1\n")
    assert "dilation" not in plain.model_dump(mode="json", by_alias=True)
    assert identity(plain) == identity(one)


def test_another_dilation_is_another_cell_that_learns_the_same(tmp_path: Path) -> None:
    plain, slow = config_of(tmp_path, EXPERIMENT), config_of(tmp_path, EXPERIMENT + "dilation: 4\n")
    assert slow.dilation == 4.0 and identity(slow) != identity(plain)
    assert recorded_identity(slow.model_dump(mode="json", by_alias=True)) == identity(slow)
    assert convergence_config(slow) == convergence_config(plain)


def test_it_is_an_axis(tmp_path: Path) -> None:
    path = tmp_path / "slow.yaml"
    path.write_text(EXPERIMENT + "matrix:\n  dilation: [0.5, 1, 4]\n")
    assert [point.config.dilation for point in load_experiment(path).points] == [0.5, 1.0, 4.0]


def test_one_node_beside_others_keeps_the_machines_time(tmp_path: Path) -> None:
    assert config_of(tmp_path, EXPERIMENT.replace("ring", "single") + "dilation: 4\n").dilation == 1.0


@pytest.mark.parametrize(
    ("nodes", "bandwidth", "step", "cores", "factor", "why"),
    [
        (2, "100 Mbit/s", "100 ms", 2, 1, "nothing is short"),
        (4, "100 Mbit/s", "200 ms", 2, 2, "share 2 processors"),
        (64, "10 Mbit/s", "1 s", 2, 32, "share 2 processors"),
        (4, "100 Mbit/s", "10 ms", 2, 32, "one after another"),
        (16, "1 Gbit/s", "1 s", 16, 8, "the relay is to carry"),
    ],
)
def test_auto_takes_the_least_power_of_two_that_carries_nodes_and_link(
    tmp_path: Path, nodes: int, bandwidth: str, step: str, cores: int, factor: float, why: str
) -> None:
    text = EXPERIMENT.replace("nodes: 4", f"nodes: {nodes}").replace("100 Mbit/s", bandwidth).replace("100 ms", step)
    config = config_of(tmp_path, text)
    found, reason = auto_dilation(config, cores)
    assert found == factor and why in reason, reason


def test_auto_says_that_a_link_that_is_not_shaped_is_not_slowed_down(tmp_path: Path) -> None:
    asked = {"nodes": 16, "link": "unshaped", "model": "mlp", "algorithm": "ring", "dilation": "auto"}
    found = resolve(asked, (), tmp_path)
    assert found.config is not None and found.config.dilation == 1.0
    assert [text for text in found.notes if text.startswith("dilation: auto is 1: ")]


def test_auto_is_the_same_for_all_arms_of_a_comparison(tmp_path: Path) -> None:
    path = tmp_path / "slow.yaml"
    arms = "[ddp, ring-fp16, top-k, diloco, parameter-server, no-communication]"
    path.write_text(EXPERIMENT.replace("nodes: 4", "nodes: 64") + f"dilation: auto\nmatrix:\n  algorithm: {arms}\n")
    assert len({point.config.dilation for point in load_experiment(path).points}) == 1


@pytest.mark.parametrize(
    ("lines", "line", "words"),
    [
        ("dilation: 0", 8, ["0 is out of range", "more than 0"]),
        ("dilation: -2", 8, ["-2 is out of range", "more than 0"]),
        ("dilation: slow", 8, ["'slow'", "'auto'", "such as 8"]),
        ("matrix: {dilation: [1, '8']}", 8, ["'8'", "'auto'", "such as 8"]),
        ("dilation: 5000", 8, ["5000", "5.8 days", "1000 steps of 100 ms", "dilation 1700"]),
        ("dilation: 600\nlimit: {time: 10 min}", 8, ["4.2 days", "limit.time of 10 min"]),
        ("dilation: 2\nlauncher: external", 8, ["hosts of their own", "launcher: local"]),
        ("dilation: 2\nlink: {bandwidth: 10 Mbit/s, tcp: {congestion_control: bbr}}", 8, ["bbr", "cubic"]),
        ("dilation: 2\nlink: unshaped", 8, ["not shaped", "give it a bandwidth"]),
        ("dilation: 2\ncompute: {threads: 1}", 8, ["declare compute.step_time"]),
        ("dilation: 0.5\nalgorithm: {local-sgd: {period: 8, overlap: 4}}", 8, ["while its nodes compute"]),
        ("dilation: 0.5\nalgorithm: async", 8, ["while its nodes compute"]),
    ],
)
def test_what_it_cannot_do_is_said_at_its_line(tmp_path: Path, lines: str, line: int, words: list[str]) -> None:
    path = tmp_path / "slow.yaml"
    own = {text.partition(":")[0] for text in lines.splitlines()}
    if "limit: {time" in lines:
        lines = lines.replace("limit: {time", "limit: {samples: 2000000000, time")
    kept = [f"# {text}" if text.partition(":")[0] in own else text for text in EXPERIMENT.splitlines()]
    path.write_text("\n".join([*kept, lines, ""]))
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    said = [str(problem) for problem in caught.value.problems]
    assert any(text.startswith(f"{path}:{line}: ") and all(word in text for word in words) for text in said), said
