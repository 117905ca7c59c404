"""What holds for every figure: it says why it does not apply, fits its width, and traces its numbers to cells."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from fixtures_album import draw_all
from fixtures_matrices import write_matrix
from fixtures_records import PRESETS, Study, write_study
from matplotlib.figure import Figure

from bwbench.base.registry import FIGURES
from bwbench.results.analysis.results import Results, load_results, regrouped
from bwbench.results.figures.album import Drawn
from bwbench.results.figures.base import AbstractFigure
from bwbench.results.figures.figure_contract import text_problems, violations
from bwbench.results.figures.style import WIDTHS_IN

STUDIES = {
    "one repeat": Study(repeats=1, limit_s=60.0, arms=tuple(PRESETS)),
    "repeats, some censored, some broken": Study(
        repeats=3, limit_s=11.5, step_time_s=0.03, environment={"cores": 4},
        statuses={("ring-fp16", 2): ("failed", "rank 2"), ("ddp", 1): ("invalid", "link")},
    ),
    "several bandwidths": Study(
        repeats=2, bandwidths_mbps=(1.0, 10.0, 100.0), limit_s=20.0, arms=("ddp", "ring", "threshold", "single")
    ),
    "not one clock": Study(repeats=1, same_boot=False, limit_s=3.0, arms=("ring", "parameter-server")),
    "all censored": Study(repeats=2, limit_s=0.3),
    "one node alone": Study(repeats=2, arms=("single",), limit_s=1.0),
    "virtual nodes": Study(repeats=2, arms=("ddp", "ring", "single"), environment={"virtual": True}),
    "no target": Study(repeats=1, target=None, limit_s=1.0),
    "nothing done": Study(repeats=1, limit_s=1.0, statuses={(arm, 0): ("failed", "x") for arm in PRESETS}),
    "unknown long names": Study(
        repeats=1, limit_s=2.0, model="transformer-of-a-plugin", dataset="an-uncommonly-long-name-of-a-data-set",
        arms=("my-very-own-codec-of-a-plugin", "another-codec", "single"), bandwidths_mbps=(0.5, 2.0),
    ),
}  # fmt: skip
# Cuts of the paper's experiments: settings that no study above varies.
MATRICES = {
    "nodes and batches": ("viable", "algorithm=[single, ddp]", "link.bandwidth=[10 Mbit/s, 54 Mbit/s]", "repeats=2"),
    "batches": ("batch_size", "algorithm=[ddp, ring-fp16]", "link.bandwidth=[10 Mbit/s]", "repeats=2"),
    "media": ("topology", "algorithm=[single, parameter-server, decentralized, decentralized-shift-one]", "repeats=1"),
    "kinds of link": ("wifi", "algorithm=[single, no-communication, ddp, diloco]", "repeats=2", "limit.time=30 s"),
    "codecs": ("precision", "repeats=2"),
    "latencies": ("latency", "algorithm=[single, ddp, diloco]", "repeats=2"),
    "many arms": ("bandwidth-cnn", "link.bandwidth=[1 Mbit/s, 54 Mbit/s, 100 Mbit/s]", "repeats=2"),
}

Pictures = Callable[[str, str], list[Results]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each study's folder."""
    root = tmp_path_factory.mktemp("studies")
    for name, study in STUDIES.items():
        write_study(root / name.replace(" ", "-"), study)
    for name, (file, *overrides) in MATRICES.items():
        write_matrix(root / name.replace(" ", "-"), file, overrides)
    return {name: root / name.replace(" ", "-") for name in (*STUDIES, *MATRICES)}


@pytest.fixture(scope="module")
def pictures(folders: dict[str, Path]) -> Pictures:
    """What of a study each picture of a figure would show; figures that compare the same share it, and its tables."""
    loaded = {name: load_results(folder) for name, folder in folders.items()}

    @cache
    def group(study: str, compares: frozenset[str]) -> list[Results]:
        return regrouped(loaded[study], compares)

    return lambda study, figure: group(study, FIGURES.load(figure).compares)


def check(figure: AbstractFigure, results: Results, width_in: float) -> None:
    """It has numbers, and its text fits."""
    assert len(figure.table(results)) > 0
    picture = figure.draw(results, width_in)
    assert picture.get_size_inches()[0] == pytest.approx(width_in)
    assert text_problems(picture) == []


@pytest.mark.parametrize("name", FIGURES.names())
def test_says_what_it_is(name: str) -> None:
    assert FIGURES.load(name)().name == name
    assert next(entry for entry in FIGURES if entry.name == name).summary


def test_figures_keep_the_contract_on_the_example_records() -> None:
    for name in ("time-to-accuracy", "bandwidth"):
        assert violations(FIGURES.load(name)()) == []


class Wrong(AbstractFigure):
    """Text on text, and an empty table."""

    name = "wrong"

    def applies(self, results: Results) -> str | None:
        return "It is only for one link." if results.bandwidths == [1e6] else None

    def table(self, results: Results) -> pd.DataFrame:
        return results.times.iloc[:0]

    def _draw(self, results: Results, width_in: float) -> Figure:
        figure = Figure(figsize=(width_in + 1, 2))
        for text in ("one", "two"):
            figure.text(0.5, 0.5, text)
        figure.text(0.98, 0.1, "beyond the edge")
        return figure


def test_the_contract_finds_what_is_wrong() -> None:
    text = "\n".join(violations(Wrong()))
    for finding in ("without a full stop", "table is empty", "'one' lies on 'two'", "cut off: 'beyond", "in wide: is"):
        assert finding in text


@pytest.mark.parametrize("study", [*STUDIES, *MATRICES])
@pytest.mark.parametrize("name", FIGURES.names())
def test_draws_or_says_why_not(pictures: Pictures, name: str, study: str) -> None:
    """Draws the first of several pictures as narrow as it may be; the next test draws the others."""
    figure = FIGURES.load(name)()
    reasons = [(figure.why_not(results), results) for results in pictures(study, name)]
    for why_not, _ in reasons:
        assert why_not is None or (why_not.strip() and not why_not.endswith("."))
    for results in [results for why_not, results in reasons if why_not is None][:1]:
        check(figure, results, min(WIDTHS_IN.values()))


@pytest.mark.thorough
@pytest.mark.parametrize("study", [*STUDIES, *MATRICES])
def test_draws_all_pictures_in_all_widths(pictures: Pictures, study: str) -> None:
    for name in FIGURES.names():
        figure = FIGURES.load(name)()
        applying = [results for results in pictures(study, name) if figure.why_not(results) is None]
        for number, (results, width_in) in enumerate(itertools.product(applying, sorted(WIDTHS_IN.values()))):
            if number > 0:  # the first one is drawn above
                check(figure, results, width_in)


@pytest.mark.parametrize("name", FIGURES.names())
def test_the_pictures_name_their_cells(folders: dict[str, Path], name: str, tmp_path: Path) -> None:
    few_first = sorted(folders.values(), key=lambda folder: len(list(folder.glob("*/*"))))
    drawn = Drawn()
    for folder in few_first:
        drawn = draw_all(load_results(folder), tmp_path, [name])
        if drawn.paths:
            break
    assert drawn.paths, "drawn of none of the studies: add one to which it applies"
    known = {path.name.rpartition("-")[2] for path in folder.glob("*/*") if path.is_dir()}
    for sidecar in (path for path in drawn.paths if path.suffix == ".json"):
        content = json.loads(sidecar.read_text())
        assert content["figure"] == name and content["table"]
        assert content["cells"] and set(content["cells"]) <= known
        subject = f"bwbench cells: {' '.join(content['cells'])}".encode()
        assert subject in sidecar.with_suffix(".png").read_bytes()
        assert content["cells"][0].encode() in sidecar.with_suffix(".pdf").read_bytes()
