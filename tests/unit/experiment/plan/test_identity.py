"""Ids of cells: those of published records for ever, whatever keys and defaults come later."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from bwbench.base import registry
from bwbench.base.plain_data import mapping_at
from bwbench.experiment.config.cell_config import (
    CellConfig,
    ComputeConfig,
    EvaluateConfig,
    LimitConfig,
    NodeCompute,
    TargetConfig,
)
from bwbench.experiment.config.matrix import COMPONENT_KEYS
from bwbench.experiment.plan.cell import Cell
from bwbench.network.link import Link
from bwbench.network.link.link import as_recorded
from bwbench.network.link.node_link import NodeOverride, TcpSettings
from bwbench.network.link.variation import Outage, Trace, Traces
from bwbench.records import iter_cells
from bwbench.records.cell_identity import DEFAULTS, QUEUE_BEFORE, identity, recorded_identity, what_counts

LR = ("lr", "weight_decay", "base_batch", "lr_scaling", "warmup", "flat")
# Keys that are hashed whatever their value: all of 0.1 outside the link, none since.
ALWAYS: dict[str, frozenset[str]] = {
    place: frozenset(keys)
    for place, keys in {
        "": (
            *("nodes", "link", "model", "dataset", "batch_size", "accumulate", "algorithm", "collective"),
            *("compression", "optimizer", "compute", "evaluate", "target", "stop", "limit", "seed", "plugins"),
            "launcher",  # where it is not local, which is never written
        ),
        "compute": ("threads", "step_time"),
        "evaluate": ("every",),
        "limit": ("samples", "time"),
        "target": ("metric", "value"),
        "algorithm every-step": ("bucket",),
        "algorithm torch-post-local-sgd": ("warmup", "period"),
        "algorithm local-sgd": ("period", "overlap", "warmup"),
        "algorithm diloco": ("period", "overlap", "outer_lr", "outer_momentum"),
        "algorithm streaming-diloco": ("period", "overlap", "outer_lr", "outer_momentum", "fragments", "mix"),
        "algorithm decentralized": ("interval",),
        "algorithm async": ("sync_interval", "warmup_steps"),
        "algorithm qadam": ("warmup_steps", "send"),
        "algorithm hivemind": ("period", "timeout"),
        "collective parameter-server": ("server",),
        "collective hierarchical": ("workers_per_host", "across"),
        "compression int8": ("block", "epsilon", "error_feedback"),
        "compression int4": ("block", "error_feedback"),
        "compression int2": ("block", "error_feedback"),
        "compression sign": ("block", "error_feedback"),
        "compression qsgd": ("levels", "block", "norm"),
        "compression terngrad": ("block", "clip"),
        "compression threshold": ("value", "quantile", "error_feedback"),
        "compression top-k": ("ratio", "exact", "error_feedback"),
        "compression random-k": ("ratio", "unbiased", "error_feedback"),
        "compression dgc": ("ratio", "momentum", "clip_norm", "warmup_steps"),
        "compression powersgd": ("rank", "error_feedback"),
        "model mlp": ("hidden",),
        "model cnn": ("width", "hidden"),
        "model cnn-large": ("width", "hidden"),
        "model resnet8": ("width",),
        "model resnet20": ("width",),
        "model char-transformer": ("embedding", "heads", "layers"),
        "dataset tinyshakespeare": ("context",),
        "dataset synthetic": ("shape", "classes", "samples", "noise"),
        "partition dirichlet": ("alpha",),
        "optimizer sgd": (*LR, "momentum", "nesterov"),
        "optimizer adam": (*LR, "betas", "eps"),
        "optimizer adamw": (*LR, "betas", "eps"),
    }.items()
}
RESULTS = Path(__file__).parents[4] / "results" / "published"
CELL = {
    "nodes": 4,
    "link": {"bandwidth": "10 Mbit/s", "queue": "1 bdp"},
    "model": {"cnn": {"width": 20}},
    "dataset": "digits",
    "algorithm": "every-step",
    "collective": "ring",
    "compression": "top-k",
    "optimizer": {"sgd": {"lr": 0.1}},
}
SECTIONS: dict[str, type[BaseModel]] = {
    "": CellConfig,
    "compute": ComputeConfig,
    "evaluate": EvaluateConfig,
    "limit": LimitConfig,
    "target": TargetConfig,
    "compute.overrides.*": NodeCompute,
    "link": Link,
    "link.tcp": TcpSettings,
    "link.overrides.*": NodeOverride,
    "link.outages.*": Outage,
    "link.trace": Traces,
    "link.trace.up": Trace,
}
KINDS = {**COMPONENT_KEYS, "partition": registry.PARTITIONS}
NOT_HASHED = {"hosts", "virtual"}  # where a cell runs
REQUIRED = {
    "compute.overrides.*": {"step_time"},
    "link.outages.*": {"at", "duration"},
    "link.trace.up": {"file"},
}  # without a default: hashed as they are


def config(**changes: object) -> CellConfig:
    return CellConfig.model_validate({**CELL, **changes})


def test_every_published_cell_has_the_id_that_it_was_published_with() -> None:
    cells = list(iter_cells(RESULTS))
    content = [mapping_at(folder.cell.config, "link") for folder in cells]
    configs = [{**cell.cell.config, "link": as_recorded(link)} for cell, link in zip(cells, content, strict=True)]
    again = [identity(CellConfig.model_validate(config)) for config in configs]
    changed = [folder.cell.id for folder, found in zip(cells, again, strict=True) if found != folder.cell.id]
    assert len(cells) >= 1267 and not changed


def test_a_jitter_of_today_has_another_id_than_one_of_before() -> None:
    """Before there were kinds every delay was drawn by itself; a link without jitter is what it was."""
    link = {"bandwidth": "10 Mbit/s", "jitter": "1 ms", "queue": "1 bdp"}
    today, before = config(link=link), config(link=as_recorded(link))
    assert (today.link.jitter_kind, before.link.jitter_kind) == ("correlated", "independent")
    assert identity(today) != identity(before)
    assert what_counts(today)["link"] == {**mapping_at(what_counts(before), "link"), "jitter_kind": "correlated"}
    assert "jitter_kind" not in mapping_at(what_counts(config()), "link")


def test_a_cell_that_was_planned_before_there_were_kinds_of_jitter_keeps_its_meaning() -> None:
    planned = config(
        link={"bandwidth": "10 Mbit/s", "overrides": {1: {"jitter": "1 ms"}}, "jitter_kind": "independent"}
    )
    content = Cell(identity(planned), "any", "any", "any", 0, planned).to_json()
    written = dict(mapping_at(content, "config"))
    link = {key: value for key, value in mapping_at(written, "link").items() if key != "jitter_kind"}
    again = Cell.from_json({**content, "config": {**written, "link": link}}, [])
    assert again.config == planned and identity(again.config) == again.id
    plain = {"bandwidth": "10 Mbit/s", "jitter": "0 us"}
    assert "jitter_kind" not in as_recorded(plain)  # a kind of no jitter would be refused


def test_a_queue_that_no_record_names_is_the_default_of_its_time() -> None:
    """One bandwidth-delay product, which has no place in an id; the default of today has."""
    today = config(link={"bandwidth": "10 Mbit/s", "latency": "40 ms"})
    before = config(link={"bandwidth": "10 Mbit/s", "latency": "40 ms", "queue": QUEUE_BEFORE})
    assert (str(today.link.queue), str(before.link.queue)) == ("50 ms", "1 bdp")
    assert (today.link.base.up_queue_bytes, before.link.base.up_queue_bytes) == (64_000, 100_000)
    assert what_counts(today)["link"] == {**mapping_at(what_counts(before), "link"), "queue": "50 ms"}
    told = before.model_dump(mode="json", by_alias=True)
    untold = {**told, "link": {**mapping_at(told, "link"), "queue": None}}
    assert recorded_identity(untold) == recorded_identity(told) == identity(before)
    content = {**Cell(identity(before), "any", "any", "any", 0, before).to_json(), "config": untold}
    assert Cell.from_json(content, []).config == before


def test_an_unshaped_link_has_no_queue_and_keeps_its_id() -> None:
    assert config(nodes=2, link="unshaped").link.queue is None
    assert what_counts(config(link="unshaped"))["link"] == {"shaped": False}
    assert as_recorded({"shaped": False, "queue": None}) == {"shaped": False, "queue": None}


@pytest.mark.parametrize("place", SECTIONS)
def test_every_key_of_the_configuration_is_in_a_table(place: str) -> None:
    keys = {field.alias or name for name, field in SECTIONS[place].model_fields.items()}
    unknown = keys - ALWAYS.get(place, set()) - set(DEFAULTS.get(place, ())) - NOT_HASHED
    nested = {key for key in unknown if f"{place}.{key}" in DEFAULTS}
    assert unknown - nested == REQUIRED.get(place, set()), f"add them to DEFAULTS[{place!r}] with their default"


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_of_a_component_is_in_a_table(kind: str) -> None:
    for entry in KINDS[kind]:
        if entry.provider == "bwbench":
            fields = KINDS[kind].load(entry.name).Config.model_fields
            place = f"{kind} {entry.name}"
            unknown = {field.alias or name for name, field in fields.items()}
            unknown -= ALWAYS.get(place, set()) | set(DEFAULTS.get(place, ()))
            assert not unknown, f"add them to DEFAULTS[{place!r}] with their default"


def test_of_the_link_counts_what_is_not_at_its_frozen_default() -> None:
    assert what_counts(config())["link"] == {"bandwidth": "10 Mbit/s"}
    rich = {
        "bandwidth": "10 Mbit/s",
        "queue": "256 kB",
        "loss": 0.01,
        "overrides": {1: {"bandwidth": "1 Mbit/s", "loss": 0.0}},
        "tcp": {"congestion_control": "reno"},
        "outages": [{"at": "10 s", "duration": "2 s"}],
    }
    link = Link.model_validate(rich)
    assert what_counts(config(link=rich))["link"] == link.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def test_a_trace_counts_by_its_content_alone() -> None:
    def counted(file: str) -> object:
        trace = {"file": file, "sha256": "0" * 64, "mean": "3 Mbit/s", "start": "3 s"}
        return what_counts(config(link={"trace": trace}))["link"]

    assert counted("/a/x.txt") == counted("/b/y.txt")
    assert "file" not in str(counted("/a/x.txt")) and "3 s" in str(counted("/a/x.txt"))


def test_a_new_key_changes_no_id_until_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(config())
    dump = CellConfig.model_dump
    added: dict[str, object] = {"sites": "one"}
    monkeypatch.setattr(CellConfig, "model_dump", lambda self, **how: {**dump(self, **how), **added})
    assert identity(config()) != before  # not in a table: counted, rather than two unlike cells under one id
    monkeypatch.setitem(DEFAULTS, "", {**DEFAULTS.get("", {}), "sites": "one"})
    assert identity(config()) == before
    added["sites"] = "two"
    assert identity(config()) != before


def of_sites(nodes: int, **asked: object) -> tuple[str, str]:
    """Ids of the configuration, and of the record that it makes."""
    link = Link.model_validate({"bandwidth": "1 Gbit/s", **asked})
    made = config(nodes=nodes, link=link)
    return identity(made), recorded_identity(made.model_dump(mode="json", by_alias=True))


def test_a_path_has_one_id_whichever_direction_is_written() -> None:
    path, sites = "100 Mbit/s 10 ms", ["a", "b"]
    written = [{"a": {"b": path}}, {"b": {"a": path}}, {"b": {"a": path}, "a": {"b": path}}]
    assert len({id_ for paths in written for id_ in of_sites(4, sites=sites, paths=paths)}) == 1
    other = {"a": {"b": path}, "b": {"a": "100 Mbit/s 11 ms"}}
    assert of_sites(4, sites=sites, paths=other)[0] != of_sites(4, sites=sites, paths=written[0])[0]


def test_nodes_of_sites_count_as_they_are_dealt_out() -> None:
    names = ["oregon", "virginia", "tokyo"]
    written = [names, dict.fromkeys(names, 2), dict.fromkeys(names)]
    assert len({id_ for regions in written for id_ in of_sites(6, regions=regions)}) == 1
    assert of_sites(7, regions=names) == of_sites(7, regions={**dict.fromkeys(names, 2), "oregon": 3})
    assert of_sites(6, regions=names)[0] != of_sites(6, regions={"oregon": 1, "virginia": 2, "tokyo": 3})[0]


def test_a_default_of_the_link_that_changes_changes_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(config())
    monkeypatch.setitem(DEFAULTS["link"], "fairness", "airtime")  # as if the model's default had moved away from it
    assert identity(config()) != before
    assert what_counts(config())["link"] == {"bandwidth": "10 Mbit/s", "fairness": "packet"}


def test_a_key_that_may_be_none_is_not_taken_for_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFAULTS["link"], "backend", "netem")  # as if there were a key with a default that is not None
    dump = CellConfig.model_dump

    def with_none(self: CellConfig, **how: object) -> dict[str, object]:
        content = dump(self, **how)
        return {**content, "link": {**content["link"], "backend": None}}

    monkeypatch.setattr(CellConfig, "model_dump", with_none)
    assert what_counts(config())["link"] == {"bandwidth": "10 Mbit/s", "backend": None}


@pytest.mark.parametrize(
    ("known", "name"),
    [(registry.ALGORITHMS, "every-step"), (registry.COLLECTIVES, "ring"), (registry.COMPRESSIONS, "top-k"),
     (registry.MODELS, "cnn"), (registry.DATASETS, "digits"), (registry.PARTITIONS, "iid-reshuffled"),
     (registry.OPTIMIZERS, "sgd")],
)  # fmt: skip
def test_a_raised_revision_changes_the_id(known: registry.Registry, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(config())
    monkeypatch.setattr(known.load(name), "revision", 2, raising=False)
    assert identity(config()) != before


def test_hosts_and_a_local_launcher_do_not_count() -> None:
    assert "hosts" not in what_counts(config()) and "launcher" not in what_counts(config())


def test_when_the_test_split_is_looked_at_counts_where_it_is_not_as_ever() -> None:
    named, always = config(evaluate={"test": "arrivals"}), config(evaluate={"test": "always"})
    assert named.model_dump(mode="json", by_alias=True)["evaluate"] == {"every": "2000 samples"}
    assert identity(named) == identity(config()) != identity(always)
    assert what_counts(always)["evaluate"] == {"every": "2000 samples", "test": "always"}
    written = always.model_dump(mode="json", by_alias=True)
    assert CellConfig.model_validate(written) == always and recorded_identity(written) == identity(always)


def test_a_decay_and_an_average_make_another_cell_and_none_of_them_makes_none() -> None:
    before = identity(config())
    assert identity(config(optimizer={"sgd": {"lr": 0.1, "decay": None}}, weight_average="none")) == before
    ids = {
        before,
        identity(config(optimizer={"sgd": {"lr": 0.1, "decay": "linear", "decay_over": "9000 samples"}})),
        identity(config(optimizer={"sgd": {"lr": 0.1, "decay": "cosine", "decay_over": "9000 samples"}})),
        identity(config(optimizer={"sgd": {"lr": 0.1, "decay": "cosine", "decay_over": "8000 samples"}})),
        identity(config(weight_average={"ema": "500 samples"})),
        identity(config(weight_average={"ema": {"horizon": "500 samples", "counts": "trained"}})),
        identity(config(weight_average="tail")),
    }
    assert len(ids) == 7
    averaged = config(weight_average={"tail": {"share": 0.2}})
    told = averaged.model_dump(mode="json", by_alias=True)
    assert recorded_identity(told) == identity(averaged) == identity(CellConfig.model_validate(told))
    assert what_counts(averaged)["weight_average"] == {"name": "tail"}
