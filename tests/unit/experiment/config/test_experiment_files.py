"""From a good file to the points of its matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bwbench.experiment.config import CellConfig, Experiment, load_experiment
from bwbench.records.cell_identity import identity

BASE = """\
name: study
nodes: 4
link: {bandwidth: 10 Mbit/s, latency: 2.5 ms}
model: mlp
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
target: {accuracy: 0.95}
"""


def load(tmp_path: Path, text: str, *overrides: str) -> Experiment:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return load_experiment(path, overrides)


def axes_of(experiment: Experiment, *keys: str) -> list[tuple[Any, ...]]:
    found = []
    for point in experiment.points:
        content = point.config.model_dump(mode="json", by_alias=True)
        row = []
        for key in keys:
            value: Any = content
            for part in key.split("."):
                value = value[int(part)] if isinstance(value, list) else value[part]
            row.append(value)
        found.append(tuple(row))
    return found


def test_defaults(tmp_path: Path) -> None:
    (point,) = load(tmp_path, BASE).points
    config = point.config
    assert (config.nodes, config.batch_size, config.accumulate, config.global_batch) == (4, 32, 1, 128)
    assert config.link.bandwidth_bps == 1e7 and config.link.latency_s == 2.5e-3
    assert config.dataset.source.name == "digits" and config.dataset.partition.name == "iid-reshuffled"
    assert (config.algorithm.name, config.collective.name, config.compression[0].name) == ("every-step", "ring", "none")
    assert config.target is not None and (config.target.metric, config.target.value) == ("accuracy", 0.95)
    assert (config.stop, config.seed, config.limit.samples) == ("target", 0, 200_000)


def test_a_cells_configuration_survives_the_way_through_json(tmp_path: Path) -> None:
    text = BASE + "compression: {threshold: {value: 0.001}}\ncompute: {threads: 2, step_time: 100 ms}\naccumulate: 4\n"
    (point,) = load(tmp_path, text + "dataset: {name: digits, partition: {dirichlet: 0.3}}\n").points
    content = point.config.model_dump(mode="json", by_alias=True)
    again = CellConfig.model_validate(content)
    assert again == point.config and again.model_dump(mode="json", by_alias=True) == content
    assert content["link"]["bandwidth"] == "10 Mbit/s" and content["compute"]["step_time"] == "100 ms"
    assert content["compression"][0] == {**content["compression"][0], "name": "threshold", "value": 0.001}


def test_the_matrix_is_cartesian_and_coupled_axes_vary_together(tmp_path: Path) -> None:
    experiment = load(
        tmp_path,
        BASE
        + "matrix:\n  link.bandwidth: [1 Mbit/s, 10 Mbit/s]\n"
        + "  collective, compression: [[torch, none], [ring, fp16]]\n",
    )
    assert axes_of(experiment, "link.bandwidth", "collective.name", "compression.0.name") == [
        ("1 Mbit/s", "torch", "none"),
        ("1 Mbit/s", "ring", "fp16"),
        ("10 Mbit/s", "torch", "none"),
        ("10 Mbit/s", "ring", "fp16"),
    ]
    assert experiment.varying == (("link", "bandwidth"), ("collective",), ("compression",))


@pytest.mark.parametrize(
    ("spelling", "key"),
    [("sgd", "optimizer.lr"), ("{sgd: {momentum: 0.5}}", "optimizer.lr"), ("{name: sgd}", "optimizer.lr")],
)
def test_options_of_a_component_may_vary_however_it_is_spelled(tmp_path: Path, spelling: str, key: str) -> None:
    text = BASE.replace("{sgd: {lr: 0.05, momentum: 0.9}}", spelling)
    assert axes_of(load(tmp_path, text + f"matrix: {{{key}: [0.1, 1e-2]}}\n"), key) == [(0.1,), (0.01,)]


def test_parts_of_a_data_set_may_vary(tmp_path: Path) -> None:
    experiment = load(
        tmp_path,
        BASE + "matrix:\n  dataset.partition: [iid-fixed, {dirichlet: 0.3}]\n  dataset.name: [digits, mnist]\n",
    )
    assert axes_of(experiment, "dataset.name", "dataset.partition.name") == [
        ("digits", "iid-fixed"),
        ("mnist", "iid-fixed"),
        ("digits", "dirichlet"),
        ("mnist", "dirichlet"),
    ]


def test_options_of_a_codec_in_a_chain_may_vary(tmp_path: Path) -> None:
    text = BASE + "compression: [{threshold: {}}]\nmatrix: {compression.value: [0.1, 0.2]}\n"
    assert axes_of(load(tmp_path, text), "compression.0.value") == [(0.1,), (0.2,)]


EXCLUSIONS = [
    ("{link.bandwidth: 10 Mbit/s, compression: threshold}", 7),
    ("{link.bandwidth: 0.01 Gbit/s, compression: threshold}", 7),
    ("{compression: threshold}", 6),
    ("{compression: {threshold: {value: 0.1}}}", 6),
    ("{compression: {name: threshold, value: 0.1}}", 6),
    ("{compression: none, collective: ring}", 6),
    ("{collective: all-gather}", 6),
    ("{algorithm: every-step}", 0),
    ("{link.latency: 2.5 ms, link.bandwidth: 1 Mbit/s}", 4),
    ("{collective: auto, link.bandwidth: 1 Mbit/s}", 7),
]


@pytest.mark.parametrize(("exclusion", "left"), EXCLUSIONS, ids=[row[0] for row in EXCLUSIONS])
def test_excluded_is_what_matches_all_keys_as_written_or_as_resolved(tmp_path: Path, exclusion: str, left: int) -> None:
    text = (
        BASE
        + f"exclude: [{exclusion}]\n"
        + "matrix:\n  link.bandwidth: [1 Mbit/s, 10 Mbit/s]\n"
        + "  collective, compression: [[ring, none], [ring, fp16], [auto, {threshold: {value: 0.1}}], "
        + "[parameter-server, none]]\n"
    )
    if left == 0:
        with pytest.raises(Exception, match="leaves no cell"):
            load(tmp_path, text)
    else:
        assert len(load(tmp_path, text).points) == left


def test_an_impossible_point_may_be_excluded(tmp_path: Path) -> None:
    matrix = "matrix:\n  collective: [ring, all-gather]\n  compression: [none, threshold]\n"
    experiment = load(tmp_path, BASE + matrix + "exclude: [{collective: ring, compression: threshold}]\n")
    assert len(experiment.points) == 3


PRESETS = {
    "ddp": ("every-step", "torch", "none"),
    "ring": ("every-step", "ring", "none"),
    "ring-fp16": ("every-step", "ring", "fp16"),
    "threshold": ("every-step", "all-gather", "threshold"),
    "parameter-server": ("every-step", "parameter-server", "none"),
    "single": ("single", "none", "none"),
    "no-communication": ("no-communication", "none", "none"),
}


def test_presets_set_three_keys_also_beside_auto(tmp_path: Path) -> None:
    experiment = load(tmp_path, BASE + f"collective: auto\nmatrix: {{algorithm: [{', '.join(PRESETS)}]}}\n")
    assert axes_of(experiment, "algorithm.name", "collective.name", "compression.0.name") == list(PRESETS.values())


def test_a_key_beside_a_preset_wins_and_that_is_said(tmp_path: Path) -> None:
    experiment = load(tmp_path, BASE + "algorithm: parameter-server\ncompression: fp16\n")
    assert axes_of(experiment, "collective.name", "compression.0.name") == [("parameter-server", "fp16")]
    assert experiment.warnings == ()
    (warning,) = load(tmp_path, BASE + "algorithm: threshold\ncompression: none\n").warnings
    assert "compression: none" in warning and "replaces 'threshold'" in warning


def test_options_beside_a_preset_go_to_its_algorithm(tmp_path: Path) -> None:
    experiment = load(tmp_path, BASE + "algorithm: {ring: {bucket: 100 kB}}\n")
    assert axes_of(experiment, "algorithm.bucket", "collective.name") == [("100 kB", "ring")]


@pytest.mark.parametrize(
    ("compression", "collective"), [("none", "ring"), ("fp16", "ring"), ("threshold", "all-gather")]
)
def test_auto_is_a_ring_where_payloads_can_be_added(tmp_path: Path, compression: str, collective: str) -> None:
    experiment = load(tmp_path, BASE + f"compression: {compression}\n")
    assert axes_of(experiment, "collective.name") == [(collective,)]
    (note,) = experiment.notes
    assert f"auto is {collective!r}" in note and compression in note


def test_single_is_one_node_without_a_link_whatever_the_file_says(tmp_path: Path) -> None:
    text = BASE + "matrix:\n  link.bandwidth: [1 Mbit/s, 10 Mbit/s]\n  algorithm: [single, ring]\n"
    experiment = load(tmp_path, text)
    alone = [point.config for point in experiment.points if point.config.algorithm.name == "single"]
    assert len(alone) == 2 and alone[0] == alone[1]
    assert alone[0].nodes == 1 and not alone[0].link.shaped and alone[0].compression[0].name == "none"
    minimal = "name: x\nmodel: mlp\nalgorithm: single\n"
    assert load(tmp_path, minimal).points[0].config.nodes == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("algorithm: single\ncompression: fp16\n", "'compression' has no effect"),
        ("algorithm: single\n", "'nodes' has no effect"),
        ("algorithm: single\n", "'link' has no effect"),
        ("algorithm: no-communication\ncollective: ring\n", "'collective' has no effect"),
        ("stop: target\ntarget:\n", "'stop: target' has no effect"),
        ("limit: {samples: 100}\n", "'evaluate.every' is more than"),
        ("optimizer: {sgd: {lr: 0.1, lr_scaling: sqrt}}\n", "'lr_scaling' has no effect without 'base_batch'"),
    ],
)
def test_a_setting_without_effect_is_said(tmp_path: Path, text: str, words: str) -> None:
    base = "\n".join(line for line in BASE.splitlines() if f"\n{line.split(':')[0]}:" not in f"\n{text}") + "\n"
    assert any(words in warning for warning in load(tmp_path, base + text).warnings)
    assert load(tmp_path, BASE).warnings == ()


def test_without_a_target_training_goes_on_to_the_limit(tmp_path: Path) -> None:
    experiment = load(tmp_path, BASE.replace("target: {accuracy: 0.95}\n", ""))
    assert experiment.points[0].config.stop == "limit" and experiment.warnings == ()


def test_several_targets_stand_from_easy_to_hard_and_the_hardest_for_all(tmp_path: Path) -> None:
    several = "targets: [{accuracy: 0.87}, {loss: 0.3}, {accuracy: 0.8}, {loss: 0.5}]\n"
    config = load(tmp_path, BASE.replace("target: {accuracy: 0.95}\n", several)).points[0].config
    assert [(one.metric, one.value) for one in config.targets] == [
        ("accuracy", 0.8), ("accuracy", 0.87), ("loss", 0.5), ("loss", 0.3)
    ]  # fmt: skip
    assert config.target == config.targets[1] and config.stop == "target"
    again = CellConfig.model_validate(config.model_dump(mode="json", by_alias=True))
    assert again == config and identity(again) == identity(config)


def test_the_order_of_targets_makes_no_other_cell_and_one_alone_is_none(tmp_path: Path) -> None:
    def identities(*targets: str) -> set[str]:
        texts = [BASE.replace("target: {accuracy: 0.95}\n", f"{target}\n") for target in targets]
        return {identity(load(tmp_path, text).points[0].config) for text in texts}

    assert (
        len(identities("targets: [{accuracy: 0.8}, {accuracy: 0.9}]", "targets: [{accuracy: 0.9}, {accuracy: 0.8}]"))
        == 1
    )
    assert len(identities("targets: [{accuracy: 0.8}, {accuracy: 0.95}]", "target: {accuracy: 0.95}")) == 2
    assert len(identities("target: {accuracy: 0.95}\ntargets: null", "target: {accuracy: 0.95}")) == 1
    one = load(tmp_path, BASE).points[0].config
    assert "targets" not in one.model_dump(mode="json") and one.all_targets == (one.target,)


MATRIX = (
    BASE + "matrix:\n  link.bandwidth: [1 Mbit/s, 10 Mbit/s]\n  algorithm, compression: [[ring, none], [ring, fp16]]\n"
)


def test_set_changes_a_value(tmp_path: Path) -> None:
    experiment = load(
        tmp_path, BASE, "nodes=2", "optimizer.lr=1e-3", "link=unshaped", "name=other", "repeats=3", "seed=7"
    )
    config = experiment.points[0].config
    assert (config.nodes, config.link.shaped, experiment.name, experiment.repeats) == (2, False, "other", 3)
    assert config.optimizer.to_json()["lr"] == 1e-3 and config.optimizer.to_json()["momentum"] == 0.9
    assert config.seed == experiment.seed == 7
    assert load(tmp_path, BASE, "nodes=2", "nodes=3").points[0].config.nodes == 3


def test_set_on_an_unshaped_link_begins_a_new_one(tmp_path: Path) -> None:
    text = BASE.replace("{bandwidth: 10 Mbit/s, latency: 2.5 ms}", "unshaped")
    assert load(tmp_path, text, "link.bandwidth=5 Mbit/s").points[0].config.link.bandwidth_bps == 5e6


def test_set_replaces_an_axis(tmp_path: Path) -> None:
    bandwidths = axes_of(load(tmp_path, MATRIX, "link.bandwidth=[2 Mbit/s, 3 Mbit/s, 4 Mbit/s]"), "link.bandwidth")
    assert {value for (value,) in bandwidths} == {"2 Mbit/s", "3 Mbit/s", "4 Mbit/s"} and len(bandwidths) == 6
    assert axes_of(load(tmp_path, MATRIX, "link.bandwidth=2 Mbit/s"), "link.bandwidth") == [("2 Mbit/s",)] * 2


def test_set_on_a_coupled_axis_takes_the_column_out_or_replaces_the_axis(tmp_path: Path) -> None:
    experiment = load(tmp_path, MATRIX, "compression=threshold", "algorithm=every-step", "link.bandwidth=1 Mbit/s")
    assert axes_of(experiment, "collective.name", "compression.0.name") == [("all-gather", "threshold")]
    experiment = load(tmp_path, MATRIX, "algorithm, compression=[[ddp, none]]", "link.bandwidth=1 Mbit/s")
    assert axes_of(experiment, "collective.name") == [("torch",)]


def test_an_exclusion_may_match_nothing_once_set_has_changed_its_axis(tmp_path: Path) -> None:
    text = MATRIX + "exclude: [{link.bandwidth: 1 Mbit/s, compression: fp16}]\n"
    assert len(load(tmp_path, text).points) == 3
    assert len(load(tmp_path, text, "link.bandwidth=10 Mbit/s").points) == 2


def test_plugins_lie_beside_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "it's a\nfolder"
    folder.mkdir()
    (folder / "half.py").write_text(
        "from bwbench.methods.compression.fp16 import Fp16\nfrom bwbench.base.registry import COMPRESSIONS\n\n\n"
        "class Half(Fp16):\n    pass\n\n\nCOMPRESSIONS.register('half-test', Half, 'a test codec')\n"
    )
    experiment = load(folder, BASE + "plugins: [half.py]\ncompression: half-test\n")
    assert experiment.plugins == (folder / "half.py",)
    config = experiment.points[0].config
    assert config.plugins == (str(folder / "half.py"),) and config.compression[0].name == "half-test"
    assert CellConfig.model_validate(config.model_dump(mode="json", by_alias=True)) == config
