"""Configurations are kin where components declare the same mean, and nothing else that learning hangs on differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.base.plain_data import Json, JsonObject, mapping_at
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.resolve import resolve
from bwbench.experiment.kin import kin_key

BASE: JsonObject = {
    "nodes": 4,
    "link": "unshaped",
    "model": "logistic",
    "dataset": "digits",
    "batch_size": 32,
    "algorithm": "ring",
    "optimizer": {"sgd": {"lr": 0.1, "momentum": 0.9}},
    "evaluate": {"every": "1000 samples"},
    "limit": {"samples": 10000},
}


def config(**changed: Json) -> CellConfig:
    found = resolve({**BASE, **changed}, (), Path.cwd())
    assert found.config is not None, found.findings
    return found.config


@pytest.mark.parametrize(
    "changed",
    [
        {"algorithm": "ddp"},
        {"algorithm": "parameter-server"},
        {"algorithm": "parameter-server-sharded"},
        {"collective": "all-gather"},
        {"algorithm": "ring-fp16"},
        {"algorithm": "ring-bf16"},
        {"algorithm": "ddp-fp16"},
        {"algorithm": "no-communication"},
        {"algorithm": {"every-step": {"bucket": "64 kB"}}},
        {"optimizer": {"sgd": {"lr": 0.2, "momentum": 0.9}}},
        {"seed": 7},
        {"link": {"bandwidth": "10 Mbit/s", "latency": "2 ms"}},
        {"limit": {"samples": 20000}},
        {"target": {"accuracy": 0.8}},
        {"compute": {"step_time": "40 ms"}},
        {"weight_average": {"ema": {"horizon": "1000 samples", "counts": "trained"}}},
    ],
)
def test_the_same_mean_up_to_rounding_is_kin(changed: JsonObject) -> None:
    assert kin_key(config(**changed)) == kin_key(config())


@pytest.mark.parametrize(
    "changed",
    [
        {"algorithm": "bytegrad"},
        {"algorithm": "top-k"},
        {"algorithm": "top-k", "compression": [{"top-k": {"ratio": 0.01}}, "fp16"]},
        {"algorithm": "decentralized"},
        {"algorithm": "local-sgd"},
        {"algorithm": "single"},
        {"nodes": 2},
        {"batch_size": 16},
        {"accumulate": 2},
        {"model": "mlp"},
        {"dataset": {"digits": {"partition": "iid-fixed"}}},
        {"optimizer": {"sgd": {"lr": 0.1, "momentum": 0.0}}},
        {"optimizer": {"adam": {"lr": 0.1}}},
        {"optimizer": {"sgd": {"lr": 0.1, "momentum": 0.9, "decay": "linear"}}},
        {"weight_average": {"ema": "1000 samples"}},
    ],
)
def test_what_learns_otherwise_is_not(changed: JsonObject) -> None:
    assert kin_key(config(**changed)) != kin_key(config())


def test_a_rate_that_decays_over_another_training_learns_otherwise() -> None:
    decays: JsonObject = {"optimizer": {"sgd": {"lr": 0.1, "momentum": 0.9, "decay": "linear"}}}
    shorter = config(**decays)
    longer = config(**decays, limit={"samples": 20000})
    assert kin_key(shorter) != kin_key(longer)
    assert kin_key(shorter) == kin_key(config(**{**decays, "algorithm": "ddp"}))


def test_records_of_before_there_was_a_decay_are_kin_to_those_of_today() -> None:
    today = config().model_dump(mode="json", by_alias=True)
    optimizer = mapping_at(today, "optimizer")
    assert not {"decay", "decay_to", "decay_over"} & optimizer.keys() and "weight_average" not in today
    assert kin_key(today) == kin_key(config())


def test_methods_of_their_own_are_kin_to_themselves_with_their_options() -> None:
    four, eight = (config(algorithm={"local-sgd": {"period": period}}) for period in (4, 8))
    assert kin_key(four) != kin_key(eight)
    assert kin_key(four) == kin_key(config(algorithm={"local-sgd": {"period": 4}}, seed=3))


def test_a_record_says_the_same_as_its_configuration() -> None:
    for changed in ({}, {"algorithm": "top-k"}):
        found = config(**changed)
        assert kin_key(found.model_dump(mode="json", by_alias=True)) == kin_key(found)


def test_what_nobody_knows_is_nobodys_kin() -> None:
    record = config().model_dump(mode="json", by_alias=True)
    stranger = {**record, "collective": {"name": "of-a-plugin"}}
    assert kin_key(stranger) != kin_key(record)
    assert kin_key({}) == kin_key({})
