"""Malformed links and traces: a message in plain words that names the value or the key, and never a traceback."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from fixtures_malformed import BadLink, BadTrace, bad_links, bad_traces
from pydantic import ValidationError

from bwbench.base.errors import ConfigError
from bwbench.base.explain import explain
from bwbench.experiment.config.load import load_experiment
from bwbench.network.link import Link
from bwbench.network.link.trace_file import MAX_BYTES, load_trace
from bwbench.network.link.variation import Trace

LINKS, TRACES = list(bad_links()), list(bad_traces())
JARGON = re.compile(
    r"Traceback|pydantic|Input should|String should|validation error|type=|input_value|<class|Error\(|\bNone\b|NoneType"
)
EXPERIMENT = "name: x\nnodes: 2\nmodel: mlp\ndataset: digits\ntarget: {accuracy: 0.9}\n"


def plain(message: str) -> None:
    assert 10 < len(message) < 1200, message
    assert not JARGON.search(message), message
    assert "\n" not in message, message


def test_there_are_two_hundred():
    assert len(LINKS) + len(TRACES) >= 200
    assert len({repr(case) for case in [*LINKS, *TRACES]}) == len(LINKS) + len(TRACES)


@pytest.mark.parametrize("case", LINKS, ids=lambda case: repr(case.link)[:80])
def test_malformed_links(case: BadLink):
    with pytest.raises(ValidationError) as caught:
        Link.model_validate(case.link)
    problems = explain(caught.value, Link)
    assert 1 <= len(problems) <= 4
    for _, message in problems:
        plain(message)
    places = [f"{'.'.join(map(str, loc))}: {message}" for loc, message in problems]
    assert any(case.names in place for place in places), places


@pytest.mark.parametrize("case", TRACES, ids=lambda case: repr(case.content[:40]))
def test_malformed_traces(case: BadTrace, tmp_path: Path):
    file = tmp_path / "trace.txt"
    file.write_bytes(case.content)
    with pytest.raises(ConfigError) as caught:
        load_trace(Trace.model_validate({"file": str(file), **case.declared}))
    (problem,) = caught.value.problems
    plain(str(problem))
    assert case.names in problem.message
    assert problem.line == case.line
    assert str(file) in str(problem)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.symlink_to("/dev/zero"), "no regular file"),
        (lambda path: path.write_bytes(b"0\t1\n" * (MAX_BYTES // 4 + 1)), "larger than 32 MiB"),
    ],
)
def test_files_that_cannot_be_traces(tmp_path, make, names):
    path = tmp_path / "trace"
    make(path)
    with pytest.raises(ConfigError, match=names) as caught:
        load_trace(Trace(file=str(path)))
    plain(str(caught.value))
    assert str(path) in str(caught.value)


def writable(value: Any) -> bool:
    """Whether YAML has the same value: no floats beyond numbers, no tuples."""
    return yaml.safe_load(yaml.safe_dump(value)) == value


def traces_files(link: Any) -> bool:
    """Whether a message may be about the file of a trace rather than about the link."""
    return isinstance(link, Mapping) and ("trace" in link or any("trace" in str(key) for key in link.values()))


SAMPLE = [case for case in LINKS if writable(case.link) and not traces_files(case.link) and case.link is not None][::5]


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: repr(case.link)[:80])
def test_in_an_experiment_the_message_has_file_and_line(case: BadLink, tmp_path: Path):
    file = tmp_path / "experiment.yaml"
    lines = yaml.safe_dump({"link": case.link}, default_flow_style=False).splitlines()
    file.write_text(EXPERIMENT + "\n".join(lines) + "\n")
    with pytest.raises(ConfigError) as caught:
        load_experiment(file)
    first = EXPERIMENT.count("\n") + 1
    for problem in caught.value.problems:
        plain(str(problem))
        assert problem.file == str(file)
        assert problem.line is not None and first <= problem.line < first + len(lines)
