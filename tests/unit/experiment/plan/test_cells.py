"""Identity, names and order of cells."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config import CellConfig, load_experiment
from bwbench.experiment.config.method_names import arm_name
from bwbench.experiment.plan import Cell, Plan, assess, build_plan, identity

BASE = """\
name: study
nodes: 4
link: {bandwidth: 10 Mbit/s, latency: 2.5 ms}
model: mlp
optimizer: {sgd: {lr: 0.05}}
"""


def plan(tmp_path: Path, text: str, *overrides: str) -> Plan:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return build_plan(load_experiment(path, overrides))


def test_equal_meanings_have_equal_ids_whatever_the_spelling(tmp_path: Path) -> None:
    spellings = [
        BASE,
        BASE.replace("10 Mbit/s", "0.01 Gbit/s"),
        BASE.replace("{sgd: {lr: 0.05}}", "{name: sgd, lr: 5e-2}"),
        BASE + "algorithm: ring\nrepeats: 1\nseed: 0\n",
        BASE.replace("name: study", "name: other") + "collective: ring\ncompression: [none]\n",
    ]
    assert len({plan(tmp_path, text).cells[0].id for text in spellings}) == 1


def test_a_method_with_several_optimizers_is_several_arms(tmp_path: Path) -> None:
    """The first that it comes with has its plain name; folders have that of the method, and say the rest anyway."""
    matrix = """matrix:
  algorithm, optimizer, weight_average:
    - [ddp, sgd, none]
    - [ddp, {sgd: {decay: linear}}, none]
    - [single, muon, none]
    - [single, {sgd: {lr: 0.1}}, {ema: 2e3 samples}]
    - [{local-sgd: {period: 4}}, sgd, none]
    - [{local-sgd: {period: 4}}, adam, none]
    - [muloco, muon, none]
"""
    cells = plan(tmp_path, BASE.replace("optimizer: {sgd: {lr: 0.05}}\n", matrix)).cells
    assert [cell.arm for cell in cells] == [
        *("ddp", "ddp(decay=linear)", "single", "single(optimizer=sgd,weight_average=ema)"),
        *("local-sgd(period=4)", "local-sgd(period=4,optimizer=adam)", "muloco"),
    ]
    assert cells[3].slug.startswith("single-") and len({cell.slug for cell in cells}) == len(cells)


def test_an_arm_that_always_has_one_optimizer_keeps_its_name(tmp_path: Path) -> None:
    matrix = "matrix:\n  algorithm, optimizer: [[ring, sgd], [qadam, adam]]\n  link.bandwidth: [1 Mbit/s, 2 Mbit/s]\n"
    cells = plan(tmp_path, BASE.replace("optimizer: {sgd: {lr: 0.05}}\n", matrix)).cells
    assert [cell.arm for cell in cells] == ["ring", "ring", "qadam", "qadam"]


def test_whatever_changes_the_training_changes_the_id(tmp_path: Path) -> None:
    changes = [
        "nodes=2",
        "seed=1",
        "link.latency=2 ms",
        "optimizer.lr=0.1",
        "compression=fp16",
        "limit.samples=5",
        "accumulate=2",
    ]
    ids = {plan(tmp_path, BASE, change).cells[0].id for change in changes}
    assert len(ids | {plan(tmp_path, BASE).cells[0].id}) == len(changes) + 1


def test_an_id_is_the_same_for_a_configuration_out_of_json(tmp_path: Path) -> None:
    (cell,) = plan(tmp_path, BASE + "compression: threshold\ntarget: {loss: 0.1}\n").cells
    again = CellConfig.model_validate(json.loads(json.dumps(cell.to_json()))["config"])
    assert identity(again) == cell.id and re.fullmatch("[0-9a-f]{10}", cell.id)


def test_a_plugin_counts_by_name_and_declared_version_not_by_place(tmp_path: Path) -> None:
    ids = []
    for folder, version in (("a", "1"), ("b", "1"), ("c", "2")):
        place = tmp_path / folder
        place.mkdir()
        (place / "extra.py").write_text(f"__version__ = '{version}'\n")
        ids.append(plan(place, BASE + "plugins: [extra.py]\n").cells[0].id)
    assert ids[0] == ids[1] != ids[2]


def test_cell_json_there_and_back(tmp_path: Path) -> None:
    (cell,) = plan(tmp_path, BASE + "target: {accuracy: 0.9}\n").cells
    content = json.loads(json.dumps(cell.to_json()))
    assert Cell.from_json(content, plugins=[]) == cell
    assert set(content) == {
        "schema",
        "id",
        "slug",
        "experiment",
        "arm",
        "repeat",
        "config",
        "role",
        "kinship",
        "topology",
        "replicas_equal",
    }


def test_a_broken_cell_json_says_what_is_wrong(tmp_path: Path) -> None:
    content = plan(tmp_path, BASE).cells[0].to_json()
    for broken, words in (
        ({**content, "schema": 99}, "schema 99"),
        ({key: value for key, value in content.items() if key != "config"}, "lacks config"),
        ({**content, "config": {**content["config"], "nodes": 0}}, "config.nodes: 0 is out of range"),
        ({**content, "config": {**content["config"], "model": {"name": "gone"}}}, "unknown model 'gone'"),
        (
            {**content, "config": {**content["config"], "nodes": 3}},
            f"has the id {content['id']}, and its configuration",
        ),
        ({**content, "config": {**content["config"], "plugins": ["/tmp/a.py"]}}, "names plugins that are not those"),
    ):
        with pytest.raises(ConfigError, match=re.escape(words)):
            Cell.from_json(broken, plugins=[])


def test_repeats_are_interleaved_in_blocks_and_share_seeds_across_arms(tmp_path: Path) -> None:
    cells = plan(tmp_path, BASE + "repeats: 3\nseed: 5\nmatrix: {algorithm: [ring, single]}\n").cells
    assert [(cell.repeat, cell.arm, cell.config.seed) for cell in cells] == [
        (0, "ring", 5),
        (0, "single", 5),
        (1, "ring", 6),
        (1, "single", 6),
        (2, "ring", 7),
        (2, "single", 7),
    ]


def test_identical_cells_are_planned_once(tmp_path: Path) -> None:
    made = plan(
        tmp_path, BASE + "repeats: 2\nmatrix:\n  link.bandwidth: [1 Mbit/s, 2 Mbit/s]\n  algorithm: [single, ring]\n"
    )
    assert len(made.cells) == 6 and made.num_identical == 2 and "run once" in made.notes[-1]
    assert len({cell.id for cell in made.cells}) == 6


ARMS = [
    ("algorithm: ddp", "ddp"),
    ("collective: torch", "ddp"),
    ("algorithm: ring\ncompression: fp16", "ring-fp16"),
    ("algorithm: parameter-server\ncompression: fp16", "parameter-server-fp16"),
    ("collective: all-gather", "all-gather"),
    ("compression: threshold", "threshold"),
    ("compression: {threshold: {value: 0.01}}", "threshold(value=0.01)"),
    ("algorithm: {ring: {bucket: 64 kB}}", "ring(bucket=64 kB)"),
    ("algorithm: single", "single"),
    ("algorithm: no-communication", "no-communication"),
]


@pytest.mark.parametrize(("text", "arm"), ARMS, ids=[row[1] for row in ARMS])
def test_names_of_arms(tmp_path: Path, text: str, arm: str) -> None:
    (cell,) = plan(tmp_path, f"{BASE}{text}\n").cells
    assert cell.arm == arm_name(cell.config) == arm


def test_slugs_name_what_varies_and_the_seed(tmp_path: Path) -> None:
    assert [cell.slug for cell in plan(tmp_path, BASE).cells] == ["ring-s0"]
    text = (
        BASE
        + "matrix:\n  algorithm: [ring, single]\n  link.bandwidth: [1 Mbit/s, 0.5 Gbit/s]\n  model, dataset: "
        + "[[mlp, digits], [{mlp: {hidden: [64]}}, {name: synthetic, noise: 1}]]\n"
        + "  batch_size: [8]\n  optimizer.lr: [0.1, 1e-3]\n"
    )
    slugs = [cell.slug for cell in plan(tmp_path, text).cells]
    assert slugs[0] == "ring-1Mbit-mlp-digits-lr0.1-s0"
    assert slugs[3] == "ring-1Mbit-mlp-hidden64-synthetic-noise1-lr0.001-s0"
    assert "ring-0.5Gbit-mlp-digits-lr0.1-s0" in slugs
    assert "single-mlp-digits-lr0.1-s0" in slugs


def test_slugs_are_safe_file_names(tmp_path: Path) -> None:
    text = BASE + "matrix:\n  link: [unshaped, {bandwidth: 1 Mbit/s, latency: 3 ms, jitter: 1 ms, loss: 0.01}]\n"
    text += "  compression: [{threshold: {value: 1.0e-5}}, {threshold: {quantile: 0.5}}]\n"
    text += "  model: [mlp, {mlp: {hidden: [" + ", ".join(["128"] * 40) + "]}}]\n"
    cells = plan(tmp_path, text).cells
    for cell in cells:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,110}", cell.folder_name.removesuffix(cell.id)), cell.slug
        assert cell.folder_name.endswith(f"-{cell.id}") and len(cell.folder_name) < 130


def test_a_result_is_found_again_after_the_matrix_has_grown(tmp_path: Path) -> None:
    before = plan(tmp_path, BASE)
    folder = tmp_path / "results" / "study" / before.cells[0].folder_name
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps({"id": "0", "slug": "x", "status": "done"}))
    after = plan(tmp_path, BASE + "matrix: {link.bandwidth: [10 Mbit/s, 1 Mbit/s]}\n")
    assert after.cells[0].slug != before.cells[0].slug
    planned = assess(after.cells, tmp_path / "results")
    assert [(item.status, item.runs) for item in planned] == [("done", False), ("missing", True)]
    assert planned[0].folder == folder


def test_plan_json_is_json(tmp_path: Path) -> None:
    content = plan(tmp_path, BASE + "matrix: {nodes: [2, 4]}\n").about.to_json()
    assert json.loads(json.dumps(content)).keys() == content.keys()
    assert content["name"] == "study" and content["varying"] == ("nodes",)
