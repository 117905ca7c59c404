"""Names and options of distribute(): the words and messages of experiment files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from bwbench.base.errors import ConfigError
from bwbench.training.library.link_pacing import read_link
from bwbench.training.library.method import Method, choose

PARAMETERS = [torch.zeros(1, requires_grad=True)]


def chosen(
    algorithm: Any,
    collective: Any = None,
    compression: Any = None,
    num_ranks: int = 4,
    optimizer: torch.optim.Optimizer | None = None,
) -> Method:
    return choose(algorithm, collective, compression, optimizer or torch.optim.SGD(PARAMETERS, lr=0.1), num_ranks)


def test_a_preset_is_a_point_on_three_axes() -> None:
    method = chosen("ring-fp16").to_json()
    assert [method[key]["name"] for key in ("algorithm", "collective")] == ["every-step", "ring"]
    assert [codec["name"] for codec in method["compression"]] == ["fp16"]


@pytest.mark.parametrize(
    "algorithm",
    [{"every-step": {"bucket": "64 kB"}}, {"name": "ring", "bucket": "64 kB"}, {"ring": {"bucket": "64 kB"}}],
)
def test_every_spelling_of_an_experiment_file_is_understood(algorithm: Any) -> None:
    method = chosen(algorithm, compression=[{"fp16": {}}])
    assert method.algorithm.options.bucket_bytes == 64e3


def test_auto_says_what_it_chose() -> None:
    method = chosen("every-step", compression="threshold")
    assert method.collective.name == "all-gather"
    assert "collective: auto is 'all-gather'" in method.notes[0]


def test_what_replaces_a_part_of_a_preset_is_said() -> None:
    assert "replaces 'fp16'" in chosen("ring-fp16", compression="none").warnings[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ringg",), r"unknown algorithm 'ringg'. Did you mean 'ring'\? Known: "),
        (("ring", "rink"), r"unknown collective 'rink'. Did you mean 'ring'\?"),
        (("ring", None, "fp61"), r"unknown compression 'fp61'. Did you mean 'fp16'\?"),
        (({"ring": {"buckets": 1}},), "has no option 'buckets'"),
        (("every-step", "ring", "threshold"), "collective 'ring' cannot carry compression 'threshold'"),
        (("single",), "trains on 1 node, and this is one of 4 processes"),
        ((3,), "3 is not an algorithm"),
    ],
)
def test_mistakes_get_the_message_of_an_experiment_file(words: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chosen(*words)


class OwnAdam(torch.optim.Adam):
    """Somebody's own."""


class OddAdam(torch.optim.Adam):
    """Steps in its own way."""

    def step(self, closure: Any = None) -> None: ...


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, OwnAdam])
def test_qadam_goes_with_every_plain_adam(kind: type[torch.optim.Adam]) -> None:
    assert chosen("qadam", optimizer=kind(PARAMETERS)).algorithm.name == "qadam"


@pytest.mark.parametrize(
    ("algorithm", "optimizer", "message"),
    [
        ("dgc", torch.optim.SGD(PARAMETERS, lr=0.1, momentum=0.9), "'sgd' does not go with compression 'dgc'"),
        ("dgc", torch.optim.RMSprop(PARAMETERS, momentum=0.9), "'RMSprop' does not go with compression 'dgc'"),
        ("qadam", torch.optim.RMSprop(PARAMETERS), "belongs to adam or adamw; .*got 'RMSprop'"),
        ("qadam", OddAdam(PARAMETERS), "belongs to adam or adamw; .*got 'OddAdam'"),
        ("qadam", torch.optim.Adam(PARAMETERS, amsgrad=True), "Adam with amsgrad=True cannot go on"),
        ("des-loc", torch.optim.Adam(PARAMETERS, amsgrad=True), "Adam with amsgrad=True divides by a third moment"),
    ],
)
def test_the_optimizer_that_is_there_decides_with_its_options(
    algorithm: str, optimizer: torch.optim.Optimizer, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        chosen(algorithm, optimizer=optimizer)


def test_more_processes_than_an_emulated_network_has_nodes() -> None:
    assert chosen("ring", num_ranks=1000).collective.name == "ring"


@pytest.mark.parametrize(
    ("collective", "workers"),
    [
        ("hierarchical", 4),
        ({"hierarchical": None}, 4),
        ({"name": "hierarchical"}, 4),
        ({"hierarchical": {"across": "scatter-gather"}}, 4),
        ("sharded", 4),
        ({"sharded": {"workers_per_host": 2}}, 2),
        ({"hierarchical": 2}, 2),
        ({"hierarchical": {"workers_per_host": 2}}, 2),
    ],
)
def test_hosts_have_as_many_workers_as_torchrun_started(
    collective: Any, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert chosen("every-step", collective, num_ranks=8).collective.options.workers_per_host == workers


def test_one_process_may_name_what_several_will_do() -> None:
    assert chosen("ring", num_ranks=1).collective.name == "ring"
    assert chosen("single", num_ranks=1).collective.name == "none"


def test_the_page_shows_methods_that_exist() -> None:
    page = (Path(__file__).parents[4] / "docs" / "library.md").read_text()
    calls = re.findall(r"distribute\(model, optimizer, (.*)\)", page)
    assert len(calls) == 5
    for arguments in calls:
        method, _, link = arguments.partition(", link=")  # which is no part of the method
        assert eval(f"chosen({method})", {"chosen": chosen}).algorithm
        assert not link or read_link(eval(link)).bandwidth_bps
