"""An experiment that a program gives as a mapping is the one of the file with that content; problems name its keys."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from fixtures_given import GOOD

from bwbench.base.errors import ConfigError
from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan.cell import build_plan

ROOT = Path(__file__).parents[4]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


def problems_of(content: dict[str, object], **override: object) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_experiment(content, override)
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_the_content_of_a_file_makes_the_same_cells(file: Path) -> None:
    given = load_experiment(yaml.safe_load(file.read_text()))
    assert given.file is None
    assert [cell.to_json() for cell in build_plan(given).cells] == [
        cell.to_json() for cell in build_plan(load_experiment(file)).cells
    ]
    assert build_plan(given).about.file is None


def test_every_problem_is_said_at_its_keys() -> None:
    said = problems_of({**GOOD, "nodes": 0, "link": {"bandwidth": 10}, "optimizer": {"sdg": {"lr": 1}}})
    assert said[0].startswith("experiment['nodes']: nodes: 0 is out of range")
    assert said[1].startswith("experiment['link']['bandwidth']: link.bandwidth: 10 has no unit")
    assert any(one.startswith("experiment['optimizer']['sdg']") and "Did you mean 'sgd'?" in one for one in said)
    matrix = {"link.bandwidth": ["1 Mbit/s", "fast"]}
    (said,) = problems_of({**GOOD, "matrix": matrix})
    assert said.startswith("experiment['matrix']['link.bandwidth'][1]: ") and "'fast' is not a bandwidth" in said
    (said,) = problems_of({name: value for name, value in GOOD.items() if name != "model"})
    assert said.startswith("experiment: 'model' is missing")
    assert problems_of({**GOOD, "nmae": 1})[0].startswith("experiment['nmae']: unknown key 'nmae'")
    assert problems_of({**GOOD, "plugins": ["gone.py"]})[0].startswith("experiment['plugins'][0]: ")


def test_overrides_set_keys_and_axes() -> None:
    changed = load_experiment(GOOD, {"nodes": 2, "link.bandwidth": "5 Mbit/s", "algorithm": ["ring", "single"]})
    cells = build_plan(changed).cells
    assert {cell.arm for cell in cells} == {"ring", "single"}
    assert {cell.config.link.describe().partition(",")[0] for cell in cells if cell.arm == "ring"} == {"5 Mbit/s"}
    assert all(cell.config.nodes == 2 for cell in cells if cell.arm == "ring")
    (said,) = problems_of(GOOD, nodes=0)
    assert said.startswith("override['nodes']: nodes: 0 is out of range")
    (said,) = problems_of(GOOD, **{"link.latency": {"a": 1}})
    assert said.startswith("override['link.latency']")


def test_a_missing_table_of_rates_says_who_makes_it() -> None:
    (said,) = problems_of({**GOOD, "optimizer": {"tuned": "rates.yaml"}})
    assert "rates.yaml: no such file" in said and "'bwbench tune FILE' makes it" in said
