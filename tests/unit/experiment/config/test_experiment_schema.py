"""The JSON schema that editors use says the same as the program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bwbench.base.errors import ConfigError
from bwbench.base.registry import REGISTRIES
from bwbench.base.yaml_document import parse_yaml
from bwbench.experiment.config import load_experiment
from bwbench.experiment.config.experiment_schema import FILE, build_schema

REPOSITORY = Path(__file__).parents[4]
EXAMPLES = sorted([*(REPOSITORY / "configs").glob("*.yaml"), *(REPOSITORY / "experiments").glob("*.yaml")])

HEAD = "name: x\nnodes: 4\nlink: {bandwidth: 1 Mbit/s}\nmodel: mlp\n"
ACCEPTED = [
    "",
    "dataset: {name: digits, partition: {dirichlet: 0.3}}\n",
    "dataset: {synthetic: {classes: 3}, partition: iid-fixed}\n",
    "compression: [fp16]\n",
    "compression: {threshold: {value: 1e-3}}\n",
    "optimizer: {name: sgd, lr: 0.1}\n",
    "optimizer: {adamw: {betas: [0.9, 0.99]}}\n",
    "algorithm: {ring: {bucket: 64 kB}}\n",
    "collective: auto\n",
    "target: {loss: 0.3}\nstop: limit\nlimit: {samples: 1e5, time: 10 min}\nrepeats: 3\nseed: 4\n",
    "compute: {threads: 2, step_time: 100 ms}\nevaluate: {every: 2e3 samples}\n",
    "matrix:\n  link.bandwidth: [1 Mbit/s]\n  algorithm, compression: [[ring, fp16]]\n  model.hidden: [[32]]\n",
    "matrix: {algorithm: [ring, single]}\nexclude: [{algorithm: single}]\n",
]
REFUSED = [
    "nods: 3\n",
    "batch_size: 0\n",
    "batch_size: many\n",
    "compute: {step_time: 100}\n",
    "compute: {treads: 1}\n",
    "evaluate: {every: 10 ms}\n",
    "optimizer: {sgd: {rl: 1}}\n",
    "optimizer: {sdg: {lr: 1}}\n",
    "compression: []\n",
    "compression: {threshold: {error_feedback: off}}\n",
    "dataset: {digits: {partition: nowhere}}\n",
    "target: {accuracy: high}\n",
    "stop: never\n",
    "matrix: {linc.bandwidth: [1 Mbit/s]}\n",
    "matrix: {link.bandwidth: 1 Mbit/s}\n",
    "matrix: {link.bandwidth: [10]}\n",
    "repeats: 0\n",
]


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = build_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_committed_file_is_current() -> None:
    assert json.loads(FILE.read_text()) == build_schema(), "run: python -m bwbench.experiment.config.experiment_schema"


@pytest.mark.parametrize("text", ACCEPTED)
def test_both_accept(validator: Any, text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(HEAD + text)
    load_experiment(path)
    assert list(validator.iter_errors(parse_yaml(HEAD + text, "x").data)) == []


@pytest.mark.parametrize("text", REFUSED)
def test_both_refuse(validator: Any, text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(HEAD + text)
    with pytest.raises(ConfigError):
        load_experiment(path)
    assert list(validator.iter_errors(parse_yaml(HEAD + text, "x").data)) != []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_what_is_shipped_is_valid(validator: Any, path: Path) -> None:
    load_experiment(path, tuning=True)  # tables of learning rates need not be there
    assert list(validator.iter_errors(parse_yaml(path.read_text(), path.name).data)) == []


def test_every_component_option_and_default_is_in_it() -> None:
    definitions = json.loads(FILE.read_text())["$defs"]
    for registry in REGISTRIES.values():
        if registry.kind == "figure":
            continue
        text = json.dumps(definitions["codec" if registry.kind == "compression" else registry.kind])
        for entry in registry:
            if entry.provider == "bwbench":
                assert f'"const": "{entry.name}"' in text
                for name, field in registry.load(entry.name).Config.model_fields.items():
                    assert f'"{field.alias or name}"' in text
    assert definitions["evaluate"]["properties"]["every"]["default"] == "2000 samples"
