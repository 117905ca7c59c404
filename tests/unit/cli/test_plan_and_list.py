"""``bwbench plan`` and ``bwbench list`` as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bwbench.base.registry import REGISTRIES

PARTS = ("convergence", "timing")
BASE = """\
name: study
nodes: 4
link: {bandwidth: 10 Mbit/s, latency: 2.5 ms}
model: logistic
optimizer: {sgd: {lr: 0.05}}
matrix: {algorithm: [ring, threshold, single]}
"""
# Run commands in a fresh process, one after the other; after each say which heavy modules have been imported.
PROGRAM = """
import contextlib, io, json, os, sys
from bwbench.cli.main import main
told = []
for folder, arguments in json.loads(sys.argv[1]):
    os.chdir(folder)
    sys.argv = ["bwbench", *arguments]
    status = 0
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        heavy = {"torch", "pandas", "matplotlib", "pyroute2"} & set(sys.modules)
        print("HEAVY", *sorted(heavy), file=sys.stderr)
    told.append((status, out.getvalue(), err.getvalue()))
print(json.dumps(told))
"""


@dataclass(frozen=True)
class Ended:
    """A command that has come to its end."""

    returncode: int
    stdout: str
    stderr: str


def ended_in_turn(home: Path, commands: Sequence[tuple[Path, Sequence[str]]]) -> list[Ended]:
    """``bwbench ARGUMENTS`` in its folder, for each of the commands."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([(str(folder), list(words)) for folder, words in commands])],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return [Ended(*one) for one in json.loads(done.stdout)]


def bwbench(folder: Path, *arguments: str) -> Ended:
    return ended_in_turn(folder, [(folder, arguments)])[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "study.yaml").write_text(BASE)
    return tmp_path


BAD = [
    ("nodes: 4", "nods: 4", ["study.yaml:2: unknown key 'nods'", "'nodes'"]),
    ("10 Mbit/s", "10 Mbps", ["study.yaml:3: ", "Mbit/s"]),
    ("10 Mbit/s", "10", ["study.yaml:3: ", "no unit"]),
    ("10 Mbit/s", "0 Mbit/s", ["study.yaml:3: ", "out of range"]),
    ("logistic", "logistik", ["study.yaml:4: ", "Did you mean 'logistic'?"]),
    ("algorithm: [", "algoritm: [", ["study.yaml:6: ", "unknown key 'algoritm'"]),
    ("nodes: 4", "nodes: [", ["study.yaml:4: ", "not valid YAML", "begins in line 2"]),
    (BASE, "", ["study.yaml: ", "empty"]),
]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Ended]]:
    """Folder and end of each plan of a bad file, by what is bad in it."""
    folders = {new: tmp_path_factory.mktemp("bad") for _, new, _ in BAD}
    for old, new, _ in BAD:
        (folders[new] / "study.yaml").write_text(BASE.replace(old, new))
    home = tmp_path_factory.mktemp("home")
    ended = ended_in_turn(home, [(folder, ("plan", "study.yaml")) for folder in folders.values()])
    return {new: (folder, one) for (new, folder), one in zip(folders.items(), ended, strict=True)}


@pytest.mark.parametrize(("new", "words"), [row[1:] for row in BAD], ids=[row[1] or "empty" for row in BAD])
def test_bad_input_ends_with_2_and_a_message_and_writes_nothing(
    refused: dict[str, tuple[Path, Ended]], new: str, words: list[str]
) -> None:
    folder, ended = refused[new]
    assert ended.returncode == 2 and ended.stdout == ""
    assert all(word in ended.stderr for word in words), ended.stderr
    assert "Traceback" not in ended.stderr and "HEAVY\n" in ended.stderr
    assert [path.name for path in folder.iterdir()] == ["study.yaml"]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("plan with spaces")
    (folder / "study.yaml").write_text(BASE)
    ended = bwbench(folder, "plan", "study.yaml", "--json")
    assert ended.returncode == 0 and "HEAVY\n" in ended.stderr, ended.stderr
    return folder, json.loads(ended.stdout)


def test_plan_as_json(planned: tuple[Path, dict[str, Any]]) -> None:
    _, content = planned
    assert [cell["arm"] for cell in content["cells"]] == ["ring", "threshold", "single"]
    ring = content["cells"][0]
    assert (ring["status"], ring["why"], ring["rtt_s"]) == ("missing", "not run yet", 0.005)
    assert ring["payload_bytes_per_rank"] == pytest.approx(1.5 * 4 * ring["num_parameters"])
    assert ring["wire_bytes_per_step"] > ring["payload_bytes_per_step"] > 0 and ring["predicted_s"] > 0
    assert set(ring) >= {"id", "slug", "status", "why", "predicted_s", "wire_bytes_per_step"}
    assert content["cells"][2]["wire_bytes_per_step"] == 0
    assert content["predicted_s"] == pytest.approx(sum(cell["predicted_s"] for cell in content["cells"]))
    assert any("auto" in note for note in content["notes"]) is False


def test_a_plan_counts_what_composed_cells_share_once(planned: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = planned
    matrix = ["--set", "whole.at_least=0", "--set", "whole.share=0", "--set", "repeats=2"]
    ended = bwbench(folder, "plan", "study.yaml", "--json", "--mode", "composed", *matrix)
    assert ended.returncode == 0, ended.stderr
    content = json.loads(ended.stdout)
    composed = sorted((cell for cell in content["cells"] if cell["way"] == "composed"), key=lambda c: c["position"])
    assert {cell["arm"] for cell in composed} == {"ring", "threshold"}
    for arm in ("ring", "threshold"):
        first, second = (cell["predicted_s"] for cell in composed if cell["arm"] == arm)
        assert first > second > 0  # the timing run is there already
    assert content["predicted_s"] == pytest.approx(sum(cell["predicted_s"] for cell in content["cells"]))


def test_a_plan_of_one_part_has_its_runs_and_what_they_cost(planned: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = planned
    matrix = ["--json", "--mode", "composed", "--set", "whole.at_least=0", "--set", "whole.share=0"]
    commands = [(folder, ("plan", "study.yaml", *matrix, *part)) for part in ((), *(("--part", one) for one in PARTS))]
    plans = [json.loads(ended.stdout) for ended in ended_in_turn(folder, commands)]
    whole, convergence, timing = plans
    assert sorted(cell["arm"] for cell in convergence["cells"]) == ["ring", "threshold"]
    assert sorted(cell["arm"] for cell in timing["cells"]) == ["ring"] * 3 + ["single"] + ["threshold"] * 3
    assert all("unshaped" in cell["link"] for cell in convergence["cells"])
    parts_s = [plan["predicted_s"] for plan in (convergence, timing)]
    assert min(parts_s) > 0 and whole["predicted_s"] == pytest.approx(sum(parts_s))


def test_plan_shows_what_is_done_and_touches_nothing(planned: tuple[Path, dict[str, Any]]) -> None:
    folder, content = planned
    cell = content["cells"][0]
    done = folder / "elsewhere" / "study" / Path(cell["folder"]).name
    done.mkdir(parents=True)
    (done / "status.json").write_text(json.dumps({"id": cell["id"], "slug": cell["slug"], "status": "done"}))
    before = sorted(path for path in folder.rglob("*") if "cache" not in path.parts)
    ended = bwbench(folder, "plan", "study.yaml", "--results", "elsewhere", "--set", "repeats=2")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) == 7 and "RTT" in lines[0] and "at most" in lines[0]
    assert "done" in lines[1] and "missing" in lines[4] and "5 ms" in lines[1]
    assert "6 cells, 5 to run" in ended.stderr
    assert sorted(path for path in folder.rglob("*") if "cache" not in path.parts) == before


def test_a_plan_says_what_may_come_too_soon_and_what_its_times_leave_out(folder: Path) -> None:
    arms = ("{algorithm: [ring, threshold, single]}", "{algorithm: [single, diloco]}")
    until = "batch_size: 32\ntarget: {accuracy: 0.9}\nlimit: {samples: 40000}\nevaluate: {every: 640 samples}\n"
    others = BASE.replace("latency: 2.5 ms", "latency: 2.5 ms, cross_traffic: upload")
    (folder / "study.yaml").write_text(others.replace(*arms) + until)
    ended = bwbench(folder, "plan", "study.yaml")
    assert ended.returncode == 0, ended.stderr
    assert "note: diloco: nodes send nothing before step 50, 16 % of the limit." in ended.stderr
    assert "note: times: connections of others that send for ever (upload) take what they get" in ended.stderr
    assert ended.stderr.splitlines()[-2].endswith(", usually much less: training stops at the target")


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    home = tmp_path_factory.mktemp("home")
    return dict(zip(REGISTRIES, ended_in_turn(home, [(home, ("list", kind)) for kind in REGISTRIES]), strict=True))


@pytest.mark.parametrize("kind", REGISTRIES)
def test_list_names_everything(listed: dict[str, Ended], kind: str) -> None:
    ended = listed[kind]
    assert ended.returncode == 0 and "HEAVY\n" in ended.stderr, ended.stderr
    shown = [line.split()[0] for line in ended.stdout.splitlines()[1:]]
    built_in = {entry.name for entry in REGISTRIES[kind] if entry.provider == "bwbench"}  # other tests register more
    assert set(shown) >= built_in and len(set(shown)) == len(shown)


def test_list_as_json_has_options_and_defaults(folder: Path) -> None:
    rows = json.loads(bwbench(folder, "list", "optimizers", "--json").stdout)
    (sgd,) = [row for row in rows if row["name"] == "sgd"]
    assert sgd["summary"] and {option["name"] for option in sgd["options"]} >= {"lr", "momentum", "warmup"}
    rows = json.loads(bwbench(folder, "list", "algorithms", "--json").stdout)
    (ddp,) = [row for row in rows if row["name"] == "ddp"]
    assert ddp["preset"] == {"algorithm": "every-step", "collective": "torch", "compression": "none"}


def test_algorithms_come_with_class_axes_and_bytes(folder: Path) -> None:
    ended = bwbench(folder, "list", "algorithms", "--json", "--parameters", "1200000", "--nodes", "4")
    assert ended.returncode == 0 and "HEAVY\n" in ended.stderr, ended.stderr
    rows = {row["name"]: row for row in json.loads(ended.stdout)}
    for row in rows.values():
        assert row["class"].startswith("bwbench.methods.algorithms.") and row["collective"] and row["codec"], row
        assert row["num_parameters"] == 1_200_000 and row["payload_bytes_per_rank"] is not None, row
    dense = 1.5 * 4 * 1_200_000
    expected = {"ddp": dense, "ddp-fp16": dense / 2, "ring": dense, "parameter-server": 2 * dense, "single": 0}
    assert {name: rows[name]["payload_bytes_per_rank"] for name in expected} == pytest.approx(expected)
    assert rows["threshold"]["payload_bytes_per_rank"] < dense / 20
    assert rows["ddp-powersgd"]["payload_bytes_per_rank"] < dense / 20
    assert rows["ring-fp16"]["codec"] == "fp16" and rows["ring"]["class"].endswith(":EveryStep")
    assert rows["ring"]["num_nodes"] == 4 and rows["single"]["num_nodes"] == 1


def test_bytes_stand_in_the_table_and_go_with_algorithms_only(folder: Path) -> None:
    ended = bwbench(folder, "list", "algorithms", "--nodes", "8")
    (ring,) = [line for line in ended.stdout.splitlines() if line.split()[0] == "ring"]
    assert "7 MB" in ring and "every-step x ring x none" in ring
    ended = bwbench(folder, "list", "models", "--nodes", "8")
    assert ended.returncode == 2 and "--nodes" in ended.stderr


def test_list_of_an_unknown_kind(folder: Path) -> None:
    ended = bwbench(folder, "list", "codecs")
    assert ended.returncode == 2 and "'codecs'" in ended.stderr and "compressions" in ended.stderr
