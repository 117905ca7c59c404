"""Ctrl-C while ``bwbench plot`` draws in several processes: one line, whole files, and nobody is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures_records import Study, write_study
from PIL import Image

from bwbench.results.figures.album import MANY_CELLS

STUDY = Study("wifi", arms=("ddp", "ring", "ring-fp16", "single"), repeats=5, bandwidths_mbps=(1.0, 10.0),
              samples_scale=800.0)  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    assert len(write_study(folder, STUDY)) >= MANY_CELLS, "with fewer one process draws them all"
    return folder


def taken_as_usual() -> None:
    """Whatever these tests were started by: a shell has what it starts in the background ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("number", "to_all"),
    [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, True)],
    ids=["Ctrl-C on a terminal", "kill -INT", "timeout"],
)
def test_it_ends_with_whole_pictures_and_no_process(
    results: Path, tmp_path: Path, number: signal.Signals, to_all: bool
) -> None:
    out = tmp_path / "figures"
    command = [sys.executable, "-m", "bwbench", "plot", str(results), "--all", "--out", str(out)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=taken_as_usual,
    ) as plot:  # fmt: skip
        assert plot.stdout is not None
        first = plot.stdout.readline()
        (os.killpg if to_all else os.kill)(plot.pid, number)
        drawn, said = plot.communicate(timeout=60)
    assert plot.returncode == 130 and said == "interrupted; run the same command again to go on\n"
    with pytest.raises(ProcessLookupError):
        os.killpg(plot.pid, 0)
    files = [path for path in out.rglob("*") if path.is_file()]
    assert {Path(line) for line in (first + drawn).splitlines()} <= set(files), "what is said to be there is there"
    for path in files:
        assert path.suffix in (".png", ".pdf", ".json"), "nothing that is half written lies there"
        if path.suffix == ".png":
            with Image.open(path) as picture:
                picture.load()
        elif path.suffix == ".pdf":
            assert path.read_bytes().rstrip().endswith(b"%%EOF")
        else:
            assert json.loads(path.read_text())["cells"]
    if number == signal.SIGINT:
        assert len(files) == 3 * len({path.with_suffix("") for path in files}), "each picture has both and its numbers"
