"""The JSON schema that editors use says the same as the program."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bwbench.base.errors import ConfigError
from bwbench.base.registry import REGISTRIES
from bwbench.base.yaml_document import parse_yaml
from bwbench.experiment.config import load_experiment
from bwbench.experiment.config.experiment_schema import as_text, build_schema, main
from tests.package.installed import copy_sources

REPOSITORY = Path(__file__).parents[4]
EXAMPLES = sorted([*(REPOSITORY / "configs").glob("*.yaml"), *(REPOSITORY / "experiments").glob("*.yaml")])

HEAD = "name: x\nnodes: 4\nlink: {bandwidth: 1 Mbit/s}\nmodel: mlp\n"
ACCEPTED = [
    "",
    "dataset: {name: digits, partition: {dirichlet: 0.3}}\n",
    "dataset: {synthetic: {classes: 3}, partition: iid-fixed}\n",
    "compression: [fp16]\n",
    "compression: {threshold: {value: 1e-3}}\n",
    "compression: {sign: {error_feedback: update}}\n",
    "compression: {top-k: {chunk: 4096, error_feedback: {decay: 0.95}}}\n",
    "optimizer: {name: sgd, lr: 0.1}\n",
    "optimizer: {adamw: {betas: [0.9, 0.99]}}\n",
    "optimizer: {muon: {lr: 0.02, decay: cosine, decay_to: 10 %, warmup: 500 samples}}\n",
    "optimizer: {sgd: {lr: 0.1, decay: null}}\n",
    "weight_average: {ema: 4000 samples}\n",
    "weight_average: {tail: {share: 25 %, counts: trained}}\n",
    "optimizer: {sgd: {lr: 0.1}}\nmatrix: {optimizer.decay: [null, linear]}\n",
    "matrix: {weight_average: [none, {ema: 2e3 samples}, tail]}\n",
    "algorithm: {ring: {bucket: 64 kB}}\n",
    "collective: auto\n",
    "target: {loss: 0.3}\nstop: limit\nlimit: {samples: 1e5, time: 10 min}\nrepeats: 3\nseed: 4\n",
    "targets: [{accuracy: 0.80}, {accuracy: 0.87}, {loss: 0.3}]\n",
    "compute: {threads: 2, step_time: 100 ms}\nevaluate: {every: 2e3 samples}\n",
    "compute: {step_time: {mean: 60 ms, spread: 20 %}, overrides: {2: {step_time: 0.1 s}}}\n",
    "compute: {step_time: {mean: 60 ms, spread: 0.2}}\n",
    "matrix: {compute.step_time: [60 ms, {mean: 60 ms, spread: 150 %}]}\n",
    "matrix:\n  link.bandwidth: [1 Mbit/s]\n  algorithm, compression: [[ring, fp16]]\n  model.hidden: [[32]]\n",
    "matrix: {algorithm: [ring, single]}\nexclude: [{algorithm: single}]\n",
]
REFUSED = [
    "nods: 3\n",
    "batch_size: 0\n",
    "batch_size: many\n",
    "compute: {step_time: 100}\n",
    "compute: {treads: 1}\n",
    "compute: {step_time: {spread: 20 %}}\n",
    "compute: {step_time: {mean: 60 ms, spread: 20}}\n",
    "compute: {step_time: {trace: 5}}\n",
    "compute: {step_time: 60 ms, overrides: {2: 60 ms}}\n",
    "evaluate: {every: 10 ms}\n",
    "optimizer: {sgd: {rl: 1}}\n",
    "optimizer: {sdg: {lr: 1}}\n",
    "optimizer: {sgd: {decay: exponential}}\n",
    "weight_average: {ema: {horizon: 3}}\n",
    "weight_average: swa\n",
    "compression: []\n",
    "compression: {threshold: {error_feedback: off}}\n",
    "compression: {threshold: {error_feedback: {decay: 2}}}\n",
    "dataset: {digits: {partition: nowhere}}\n",
    "target: {accuracy: high}\n",
    "targets: [{accuracy: 0.9}]\n",
    "targets: [{accuracy: 0.9}, {accuracy: 0.9}]\n",
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


def test_it_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    main([str(tmp_path / "x.json")])
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == as_text(build_schema()) == capsys.readouterr().out


def test_a_wheel_has_it(tmp_path: Path) -> None:
    source = copy_sources(tmp_path / "source")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(tmp_path), str(source)], timeout=100, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        content = file.read("bwbench/experiment/config/experiment.schema.json")
    assert content.decode() == as_text(build_schema())


def test_it_is_made_with_what_building_brings() -> None:
    code = """if True:
        import sys
        from bwbench.experiment.config.experiment_schema import build_schema
        build_schema()
        print(*{name.partition(".")[0] for name in sys.modules})
    """
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=True, capture_output=True, text=True)
    projects = importlib.metadata.packages_distributions()
    used = {project.lower() for name in done.stdout.split() for project in projects.get(name, ())}
    assert "pydantic" in used
    assert used & listed("dependencies") <= listed("requires")


def listed(key: str) -> set[str]:
    """Names of the projects in a list of pyproject.toml."""
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf"^{key} = (\[.*?\])", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return {name.lower() for name in re.findall(r'"([\w-]+)', found[1])}


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
    definitions = build_schema()["$defs"]
    for registry in REGISTRIES.values():
        if registry.kind == "figure":
            continue
        text = json.dumps(definitions["codec" if registry.kind == "compression" else registry.kind])
        for entry in registry:
            if entry.provider == "bwbench":
                assert f'"const": "{entry.name}"' in text
                for name, field in registry.load(entry.name).Config.model_fields.items():
                    assert f'"{field.alias or name}"' in text
    evaluate = definitions["evaluate"]["properties"]
    assert evaluate["every"]["default"] == "2000 samples"
    assert (evaluate["test"]["default"], evaluate["test"]["enum"]) == ("arrivals", ["end", "arrivals", "always"])
