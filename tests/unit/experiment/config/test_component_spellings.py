"""A component may be written in several ways; its options are checked by its own class, and errors keep their place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import Field, ValidationError

from bwbench.base.registry import COMPRESSIONS, Registry
from bwbench.base.units import Memory
from bwbench.experiment.config import Component, ComponentConfig
from bwbench.experiment.config.cell_config import parse_dataset
from bwbench.experiment.config.component_parsing import parse_chain, parse_component


class SieveConfig(ComponentConfig):
    ratio: float = Field(0.01, gt=0, le=1)
    bucket_bytes: Memory = Field(1e6, alias="bucket")
    steps: int = 3
    on: bool = True
    shape: tuple[int, ...] = ()


class Sieve:
    Config = SieveConfig


class PlainConfig(ComponentConfig):
    pass


class Plain:
    Config = PlainConfig


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry = Registry("codec", "bwbench", [("gone", "no_such_module:Gone", "cannot be imported")])
    registry.register("sieve", Sieve, "a test codec")
    registry.register("plain", Plain, "another")
    yield registry


def errors_of(value: Any, registry: Registry) -> list[tuple[Any, str]]:
    with pytest.raises(ValidationError) as caught:
        parse_component(value, registry)
    return [(error["loc"], error["msg"]) for error in caught.value.errors()]


@pytest.mark.parametrize(
    "value",
    [
        {"name": "sieve", "ratio": 0.5, "bucket": "64 kB"},
        {"sieve": {"ratio": 0.5, "bucket": "64 kB"}},
        {"sieve": {"ratio": 0.5, "bucket": "0.064 MB"}},
    ],
)
def test_spellings_of_the_same(registry: Registry, value: Any) -> None:
    component = parse_component(value, registry)
    assert component == Component("sieve", SieveConfig.model_validate({"ratio": 0.5, "bucket": "64 kB"}))
    assert parse_component(component.to_json(), registry) == component
    assert parse_component(component, registry) is component


@pytest.mark.parametrize("value", ["plain", {"name": "plain"}, {"plain": None}, {"plain": {}}])
def test_spellings_without_options(registry: Registry, value: Any) -> None:
    assert parse_component(value, registry).to_json() == {"name": "plain"}


def test_a_single_value_is_the_first_option(registry: Registry) -> None:
    assert parse_component({"sieve": 0.3}, registry).to_json()["ratio"] == 0.3
    assert errors_of({"sieve": 3}, registry) == [(("sieve",), "ratio: 3 is out of range: it must be at most 1.0")]
    assert "takes no options" in errors_of({"plain": 3}, registry)[0][1]


@pytest.mark.parametrize(
    ("options", "place", "words"),
    [
        ({"ratio": "0.5"}, "ratio", "'0.5' is not a number"),
        ({"ratio": True}, "ratio", "true is not a number"),
        ({"ratio": float("nan")}, "ratio", "NaN"),
        ({"steps": True}, "steps", "true is not a whole number"),
        ({"steps": 2.5}, "steps", "2.5 is not a whole number"),
        ({"on": "yes"}, "on", "write true or false"),
        ({"on": 1}, "on", "write true or false"),
        ({"bucket": 64}, "bucket", "'64 kB'"),
        ({"bucket_bytes": "64 kB"}, "bucket_bytes", "Did you mean 'bucket'?"),
        ({"shape": 3}, "shape", "3 is not a list"),
        ({"shape": [3, "x"]}, ("shape", 1), "'x' is not a whole number"),
        ({"ratoi": 1}, "ratoi", "codec 'sieve' has no option 'ratoi'. Did you mean 'ratio'? Known: ratio, bucket"),
    ],
)
def test_options_are_checked_where_they_stand(registry: Registry, options: Any, place: Any, words: str) -> None:
    place = place if isinstance(place, tuple) else (place,)
    (error,) = errors_of({"sieve": options}, registry)
    assert error[0] == ("sieve", *place) and words in error[1]
    (error,) = errors_of({"name": "sieve", **options}, registry)
    assert error[0] == place and words in error[1]


def test_several_problems_at_once(registry: Registry) -> None:
    assert len(errors_of({"sieve": {"ratio": 2, "steps": "x", "nope": 1}}, registry)) == 3


def test_whole_numbers_may_be_written_with_an_exponent_and_lists_stand_for_tuples(registry: Registry) -> None:
    component = parse_component({"sieve": {"steps": 1e3, "shape": [1, 2.0]}}, registry)
    assert component.options == SieveConfig(steps=1000, shape=(1, 2))


@pytest.mark.parametrize("value", [None, 3, True, [], ["sieve"], {}, {"a": 1, "b": 2}, {"name": 3}])
def test_what_is_no_component(registry: Registry, value: Any) -> None:
    assert len(errors_of(value, registry)) == 1


def test_a_component_that_cannot_be_imported_says_so(registry: Registry) -> None:
    ((_, message),) = errors_of("gone", registry)
    assert "cannot be loaded" in message and "no_such_module" in message


def test_chains_keep_the_place_of_each_error() -> None:
    assert [codec.name for codec in parse_chain("fp16")] == ["fp16"]
    assert [codec.name for codec in parse_chain(["fp16", {"threshold": {}}])] == ["fp16", "threshold"]
    with pytest.raises(ValidationError) as caught:
        parse_chain([{"fp61": {}}, {"name": "threshold", "x": 1}], COMPRESSIONS)
    assert [error["loc"] for error in caught.value.errors()] == [(0, "fp61"), (1, "x")]


@pytest.mark.parametrize(
    "value",
    [
        {"name": "synthetic", "classes": 4, "partition": {"dirichlet": 0.3}},
        {"synthetic": {"classes": 4}, "partition": {"name": "dirichlet", "alpha": 0.3}},
        {"synthetic": {"classes": 4, "partition": {"dirichlet": {"alpha": 0.3}}}},
    ],
)
def test_spellings_of_a_data_set(value: Any) -> None:
    dataset = parse_dataset(value)
    flat = dataset.to_json()
    assert (flat["name"], flat["classes"], flat["partition"]) == ("synthetic", 4, {"name": "dirichlet", "alpha": 0.3})
    assert parse_dataset(flat) == dataset


def test_errors_inside_a_data_set_keep_their_place() -> None:
    with pytest.raises(ValidationError) as caught:
        parse_dataset({"synthetic": {"clases": 4, "partition": "iidd"}})
    assert [error["loc"] for error in caught.value.errors()] == [("synthetic", "clases"), ("synthetic", "partition")]
