"""Whatever stands in a file or behind --set, the answer is an experiment or a ConfigError."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bwbench.base.errors import ConfigError
from bwbench.experiment.config import load_experiment
from bwbench.experiment.config.load import KNOWN_KEYS
from bwbench.experiment.config.matrix import CELL_KEYS
from bwbench.experiment.plan import build_plan

WORDS = [
    *KNOWN_KEYS,
    *("ring fp16 threshold single cnn mlp digits sgd none auto unshaped name off true iid-fixed dirichlet".split()),
    *("accuracy lr bandwidth link.bandwidth optimizer.lr << ~ 1e999 0x10".split()),
    *("10 Mbit/s", "1 ms", "2000 samples", "a, b", "nodes, batch_size", ""),
]
SCALARS = st.one_of(
    st.sampled_from(WORDS), st.none(), st.booleans(), st.integers(-5, 10**20), st.floats(), st.text(max_size=8)
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
GOOD: dict[str, Any] = {
    "name": "good",
    "nodes": 4,
    "link": {"bandwidth": "10 Mbit/s", "latency": "2.5 ms"},
    "model": "mlp",
    "optimizer": {"sgd": {"lr": 0.1}},
    "target": {"accuracy": 0.9},
    "matrix": {"algorithm": ["ring", "single"]},
}
RELAXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def answers(path: Path, *overrides: str) -> None:
    with contextlib.suppress(ConfigError):
        build_plan(load_experiment(path, overrides))


@RELAXED
@given(changes=st.dictionaries(st.sampled_from(KNOWN_KEYS), VALUES, min_size=1, max_size=3))
def test_a_good_file_with_anything_under_some_keys(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "exp.yaml"
    with contextlib.suppress(UnicodeEncodeError):
        path.write_text(yaml.safe_dump({**GOOD, **changes}, allow_unicode=True), encoding="utf-8")
        answers(path)


@RELAXED
@given(
    axes=st.dictionaries(
        st.sampled_from([*CELL_KEYS, "link.bandwidth", "optimizer.lr", "dataset.partition.alpha", "model, link.loss"]),
        st.lists(VALUES, min_size=1, max_size=3),
        max_size=3,
    ),
    exclusions=st.lists(st.dictionaries(st.sampled_from(CELL_KEYS), VALUES, max_size=2), max_size=2),
)
def test_any_matrix(tmp_path: Path, axes: dict[str, Any], exclusions: list[Any]) -> None:
    path = tmp_path / "exp.yaml"
    with contextlib.suppress(UnicodeEncodeError):
        content = {**GOOD, "matrix": axes, "exclude": exclusions}
        path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        answers(path)


@RELAXED
@given(
    content=st.binary(max_size=60) | st.text(alphabet="ab:-[]{}&*!|>'\"\n\t #%@`,?<.1~", max_size=40).map(str.encode)
)
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "exp.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        load_experiment(path)


@RELAXED
@given(
    key=st.sampled_from(
        [*KNOWN_KEYS, "link.bandwidth", "optimizer.lr", "optimizer.sgd.lr", "dataset.partition.alpha", "model.x.y"]
    )
    | st.text(max_size=8),
    value=SCALARS | VALUES,
)
def test_any_override(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    answers(path, f"{key}={value}")
    answers(path, f"{key}={yaml.safe_dump(value, default_flow_style=True)}")
