"""Three hundred malformed matrices, made by rule: one clear answer each, exit status 2, and nothing is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bwbench.cli import main

BASE: dict[str, Any] = {
    "name": "bad",
    "nodes": 4,
    "link": {"bandwidth": "10 Mbit/s", "latency": "2.5 ms"},
    "model": "logistic",
    "dataset": "digits",
    "algorithm": "ring",
    "optimizer": {"sgd": {"lr": 0.1}},
}
COUNTS = [0, -1, "four", 2.5, True, [1], {"a": 1}]
GOOD_AND_BAD: dict[str, tuple[Any, list[Any]]] = {
    "nodes": (2, [*COUNTS, 255, 10**9]),
    "batch_size": (8, [*COUNTS, 10**7]),
    "accumulate": (2, COUNTS),
    "seed": (1, [-1, "x", 1.5, 2**40, True]),
    "limit.samples": (1000, [0, -5, "many", 1.5, "5 min"]),
    "limit.time": ("1 min", [60, "60", "-1 s", "soon", True]),
    "evaluate.every": ("2000 samples", ["2000 s", "often", -1, True]),
    "compute.threads": (1, [0, -1, "two", 5000]),
    "compute.step_time": ("100 ms", [100, "0 s", "-5 ms", "slow", ["1 s"], {"mean": "1 s"}, {"trace": "none.csv"}]),
    "compute.overrides": ({}, [1, [2], {1: "60 ms"}, {"one": {"step_time": "1 s"}}, {9: {"step_time": "1 s"}}]),
    "stop": ("limit", ["never", 5, True, ["target"]]),
    "target": ({"accuracy": 0.9}, [0.9, "accuracy", {"accuracy": "high"}, {"accuracy": 0.9, "loss": 1}, [0.9]]),
    "link": ("unshaped", ["10 Mbit/s", 5, {"bandwith": "1 Mbit/s"}, {"latency": "1 ms"}, {"preset": "dls"}]),
    "link.bandwidth": ("1 Mbit/s", ["10", 10, "10 Mbps", "-1 Mbit/s", "0 bit/s", "fast", True, ["1 Mbit/s"]]),
    "link.latency": ("1 ms", ["5", 5, "5 seconds", "-1 ms", "soon"]),
    "link.loss": (0.01, [-0.1, 1, 1.5, "a lot", [0.1]]),
    "link.medium": ("shared", ["wifi", 5, True]),
    "algorithm": ("ddp", ["rng", 5, {"ring": {"x": 1}}, {"local-sgd": {"period": 0}}, ["ring", "ddp"], "local_sgd"]),
    "collective": ("ring", ["rings", 7, {"ring": {"y": 2}}, {"a": 1, "b": 2}]),
    "compression": ("fp16", ["fp61", 3, {"top-k": {"ratio": 2}}, {"top-k": {"ration": 0.1}}, ["fp16", "nothing"]]),
    "model": ("mlp", ["mpl", 1, {"mlp": {"width": "wide"}}, {"cnn": {"nothing": 5}}]),
    "dataset": ("digits", ["digit", 9, {"digits": {"size": 3}}, {"name": "digits", "part": "idd"}]),
    "optimizer": ({"sgd": {"lr": 0.2}}, ["sdg", 0.1, {"sgd": {"lr": "fast"}}, {"sgd": {"lr": -1}}, {"sgd": {"rl": 1}}]),
    "optimizer.lr": (0.2, ["fast", -1, True, [0.1]]),
}
UNKNOWN = [
    "nods",
    "link.bandwith",
    "limit.sample",
    "compute.thread",
    "evaluate.evry",
    "seed.x",
    "nodes.n",
    "",
    ".",
    "a.b",
]


def malformed() -> Iterator[tuple[dict[str, Any], str]]:
    """The matrix and its exclusions, and a word that the answer has to hold."""
    for key, (good, bads) in GOOD_AND_BAD.items():
        other = "nodes" if key != "nodes" else "batch_size"
        for bad in bads:
            yield {"matrix": {key: [good, bad]}}, key.partition(".")[0]
            yield {"matrix": {other: [2, 4], key: [bad]}}, key.partition(".")[0]
            yield {"matrix": {f"{other}, {key}": [[2, good], [2, bad]]}}, key.partition(".")[0]
        for shape in (good if not isinstance(good, list) else 5, [], None):
            yield {"matrix": {key: shape}}, "is not a list of values"
        yield {"matrix": {f"{key}, {other}": [[good]]}}, "list of 2 values"
        yield {"matrix": {key: [good], f"{key}, {other}": [[good, 2]]}}, "two axes"
        yield {"matrix": {key: [good]}, "exclude": {key: good}}, "exclude"
        yield {"matrix": {key: [good]}, "exclude": [{key: "no such value"}]}, "matches no cell"
        yield {"matrix": {key: [good]}, "exclude": [{key: good}]}, "exclude"
    for key in UNKNOWN:
        yield {"matrix": {key: [1, 2]}}, "unknown key"
        yield {"matrix": {"nodes": [2]}, "exclude": [{key: 1}]}, "unknown key"
    for matrix in (5, "nodes", ["nodes"], [{"nodes": [2]}], True):
        yield {"matrix": matrix}, "is not a mapping"
    for exclude in (5, "nodes", [5], [{}], [["nodes"]]):
        yield {"matrix": {"nodes": [2]}, "exclude": exclude}, "exclude"
    yield {"matrix": {"batch_size": list(range(1, 400)), "seed": list(range(400))}}, "at most 100000"
    for repeats in (0, -1, 1001, "three", 1.5, True):
        yield {"matrix": {"nodes": [2]}, "repeats": repeats}, "repeats"


CASES = list(malformed())


def test_there_are_three_hundred() -> None:
    assert len({repr(case) for case in CASES}) >= 300


@pytest.mark.parametrize("part", range(8))
def test_each_ends_with_2_and_a_clear_message_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: int
) -> None:
    wrong = []
    for number, (changes, word) in list(enumerate(CASES))[part::8]:
        path = tmp_path / f"bad{number}.yaml"
        path.write_text(yaml.safe_dump({**BASE, **changes}, sort_keys=False))
        code = main._run(["sweep", str(path), "--dry-run", "--results", str(tmp_path / "results")])
        said = capsys.readouterr()
        lines = said.err.strip().splitlines()
        clear = bool(lines) and lines[0].startswith(f"error: {path}") and word in said.err and len(lines) <= 10
        if code != 2 or not clear or said.out or "Traceback" in said.err or max(map(len, lines)) > 1500:
            wrong.append((changes, word, code, said.err[:400]))
    assert not wrong, "\n\n".join(map(str, wrong))
    assert not (tmp_path / "results").exists()
